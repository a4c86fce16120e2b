# CPack's settings for one .deb. packaging/deb.py sets TREE, PACKAGE, VERSION, ARCH, OUT and MAINTAINER, and includes
# this file. TREE is a folder with the files where they will be below /.
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
# dpkg-shlibdeps would name the glibc of the build machine, and the programs need an older one only.
set(CPACK_DEBIAN_PACKAGE_SHLIBDEPS OFF)

if(PACKAGE STREQUAL muster)
  set(CPACK_DEBIAN_PACKAGE_SECTION science)
  set(CPACK_DEBIAN_PACKAGE_DEPENDS "libc6 (>= 2.17)")
  # What the programs load with dlopen (docs/install.md). A token or TLS needs OpenSSL: 3, or 1.1 on Debian 11.
  set(CPACK_DEBIAN_PACKAGE_SUGGESTS "libhwloc15, libssl3 | libssl1.1, muster-services, python3")
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

The installation neither enables nor starts a service. Without a token musterd
asks no client for a password, so the administrator first decides which
network it serves.")
  set(CPACK_DEBIAN_PACKAGE_CONTROL_STRICT_PERMISSION ON)
  set(CPACK_DEBIAN_PACKAGE_CONTROL_EXTRA
    "${CMAKE_CURRENT_LIST_DIR}/debian/services/postinst"
    "${CMAKE_CURRENT_LIST_DIR}/debian/services/prerm"
    "${CMAKE_CURRENT_LIST_DIR}/debian/services/postrm"
    "${CMAKE_CURRENT_LIST_DIR}/debian/services/conffiles")
endif()
# CPack requires this description even though the .deb has its own.
set(CPACK_PACKAGE_DESCRIPTION "${CPACK_DEBIAN_PACKAGE_DESCRIPTION}")
