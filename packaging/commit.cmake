# Writes the commit that is built into a file to be included: cmake -DSOURCE=… -DOUTPUT=… -P commit.cmake
#
# Outside of a git checkout the file packaging/COMMIT says it (an sdist has one), or nobody does. The
# output is touched only when it changes: then two programs are linked again, and nothing is compiled.
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
