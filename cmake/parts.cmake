# One static library per folder of the house. A library sees only what its folder may use: the link graph is the law,
# tests/check_includes.py says which include broke it.

add_library(tidemark_flags INTERFACE)
target_compile_options(tidemark_flags INTERFACE -Wall -Wextra -Wpedantic -Wshadow -Wconversion)
if(TIDEMARK_WERROR)
  target_compile_options(tidemark_flags INTERFACE -Werror)
endif()
if(TIDEMARK_SANITIZE)
  target_compile_options(tidemark_flags INTERFACE -fsanitize=${TIDEMARK_SANITIZE} -fno-omit-frame-pointer
                                                  -fno-sanitize-recover=all)
  target_link_options(tidemark_flags INTERFACE -fsanitize=${TIDEMARK_SANITIZE})
endif()

# tidemark_folder(NAME [USES folders...] [LIBRARIES targets...]): every .cc below the current folder.
function(tidemark_folder name)
  cmake_parse_arguments(PART "" "" "USES;LIBRARIES" ${ARGN})
  file(GLOB_RECURSE sources CONFIGURE_DEPENDS ${CMAKE_CURRENT_SOURCE_DIR}/*.cc)
  add_library(tidemark_${name} STATIC ${sources})
  target_include_directories(tidemark_${name} PUBLIC ${PROJECT_SOURCE_DIR})
  target_link_libraries(tidemark_${name} PRIVATE tidemark_flags)
  foreach(used IN LISTS PART_USES)
    target_link_libraries(tidemark_${name} PUBLIC tidemark_${used})
  endforeach()
  target_link_libraries(tidemark_${name} PUBLIC ${PART_LIBRARIES})
endfunction()

