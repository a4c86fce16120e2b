# Writes a header with the commit that is built: cmake -DSOURCE=... -DOUTPUT=... -P commit.cmake
#
# An sdist has no .git: its file packaging/COMMIT names the commit. Without .git and that file, the commit is "unknown".
# The header is written only when the commit changes. Then one source file is compiled, and the programs are linked again.
cmake_minimum_required(VERSION 3.25)
set(commit unknown)
if(EXISTS ${SOURCE}/packaging/COMMIT)
  file(STRINGS ${SOURCE}/packaging/COMMIT commit LIMIT_COUNT 1)
elseif(EXISTS ${SOURCE}/.git)
  execute_process(COMMAND git -C ${SOURCE} describe --always --abbrev=12 --dirty --exclude=*
    OUTPUT_VARIABLE described OUTPUT_STRIP_TRAILING_WHITESPACE RESULT_VARIABLE failed ERROR_QUIET)
  if(NOT failed)
    set(commit ${described})
  endif()
endif()
file(CONFIGURE OUTPUT ${OUTPUT} CONTENT "#define MUSTER_COMMIT \"@commit@\"\n" @ONLY)
