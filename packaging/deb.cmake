# CPack's settings for one .deb from a tree that is laid out as on the machine. packaging/deb.py sets TREE,
# PACKAGE, VERSION, ARCH, OUT and MAINTAINER, and includes this file.
set(CPACK_GENERATOR DEB)
set(CPACK_INSTALLED_DIRECTORIES "${TREE};/")
set(CPACK_PACKAGE_DIRECTORY ${OUT})
set(CPACK_PACKAGING_INSTALL_PREFIX "")
set(CPACK_PACKAGE_NAME ${PACKAGE})
set(CPACK_PACKAGE_VERSION ${VERSION})
set(CPACK_PACKAGE_VENDOR "muster")
set(CPACK_PACKAGE_CONTACT "${MAINTAINER}")
set(CPACK_DEBIAN_PACKAGE_NAME ${PACKAGE})
set(CPACK_DEBIAN_PACKAGE_VERSION ${VERSION})
set(CPACK_DEBIAN_PACKAGE_ARCHITECTURE ${ARCH})
set(CPACK_DEBIAN_FILE_NAME "${PACKAGE}_${VERSION}_${ARCH}.deb")
set(CPACK_PACKAGE_FILE_NAME ${PACKAGE}_${VERSION}_${ARCH})
set(CPACK_DEBIAN_COMPRESSION_TYPE xz)
set(CPACK_DEBIAN_PACKAGE_PRIORITY optional)
set(CPACK_STRIP_FILES OFF)
# dpkg-shlibdeps would name the glibc of the machine that packs, not the one that the programs need.
set(CPACK_DEBIAN_PACKAGE_SHLIBDEPS OFF)

if(PACKAGE STREQUAL muster)
  set(CPACK_DEBIAN_PACKAGE_SECTION science)
  set(CPACK_DEBIAN_PACKAGE_DEPENDS "libc6 (>= 2.17)")
  set(CPACK_DEBIAN_PACKAGE_SUGGESTS "libhwloc15, muster-services, python3")
  set(CPACK_DEBIAN_PACKAGE_DESCRIPTION "launcher of distributed PyTorch training
muster takes the place of torchrun on each node of a job: the same options,
variables, log files and exit codes. It starts in milliseconds, leaves no
process behind, and names the first failure.

musterd is the rendezvous of any number of jobs, and a store for PyTorch's
TCPStore clients. musterctl shows what goes on in jobs, and checks machines.")
else()
  set(CPACK_DEBIAN_PACKAGE_SECTION science)
  set(CPACK_DEBIAN_PACKAGE_DEPENDS "muster (= ${VERSION}), systemd, passwd")
  set(CPACK_DEBIAN_PACKAGE_DESCRIPTION "systemd's units for muster and musterd
musterd.service is the rendezvous of many jobs, musterd.socket holds its port
while it is restarted, and muster@NAME.service is a node's part of a job.

No service is enabled or started by the installation: musterd asks nobody
for a password, so the network that it serves is the administrator's choice.")
  set(CPACK_DEBIAN_PACKAGE_CONTROL_STRICT_PERMISSION ON)
  set(CPACK_DEBIAN_PACKAGE_CONTROL_EXTRA
    "${CMAKE_CURRENT_LIST_DIR}/debian/services/postinst"
    "${CMAKE_CURRENT_LIST_DIR}/debian/services/prerm"
    "${CMAKE_CURRENT_LIST_DIR}/debian/services/postrm"
    "${CMAKE_CURRENT_LIST_DIR}/debian/services/conffiles")
endif()
# CPack wants it for any generator, and does not look whether the .deb has its own.
set(CPACK_PACKAGE_DESCRIPTION "${CPACK_DEBIAN_PACKAGE_DESCRIPTION}")
