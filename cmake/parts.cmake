# One static library per folder of the house. A library sees only what its folder may use: the link graph is the law,
# tests/check_includes.py says which include broke it.

add_library(tidemark_flags INTERFACE)
set(warnings -Wall -Wextra -Wpedantic -Wshadow -Wconversion)
if(CMAKE_CXX_COMPILER_ID STREQUAL "GNU" AND CMAKE_CXX_COMPILER_VERSION VERSION_LESS 13)
  list(APPEND warnings -Wno-restrict)  # false on "literal" + std::string: https://gcc.gnu.org/PR105651
endif()
if(CMAKE_CXX_COMPILER_ID STREQUAL "Clang")
  # Embedded files are literals; GCC's -Wconversion leaves signs alone as well.
  list(APPEND warnings -Wno-overlength-strings -Wno-sign-conversion)
endif()
if(TIDEMARK_WERROR)
  list(APPEND warnings -Werror)
endif()
target_compile_options(tidemark_flags INTERFACE "$<$<COMPILE_LANGUAGE:CXX>:${warnings}>")
if(TIDEMARK_HAS_CUDA)  # of nvcc, and of the host's compiler, less what nvcc's own code between them is full of
  target_compile_options(tidemark_flags INTERFACE "$<$<COMPILE_LANGUAGE:CUDA>:-Xcompiler=-Wall,-Wextra,-Wshadow>")
  if(TIDEMARK_WERROR)
    target_compile_options(tidemark_flags INTERFACE "$<$<COMPILE_LANGUAGE:CUDA>:-Werror=all-warnings>")
  endif()
endif()
if(CMAKE_CXX_COMPILER_ID STREQUAL "GNU")
  # GCC collects its garbage from 128 MiB on at the latest. From 1 GiB on (in KiB), GCC 12 was measured to take a seventh
  # less time for the longest of these files, and a quarter of a GiB more.
  target_compile_options(tidemark_flags INTERFACE "$<$<COMPILE_LANGUAGE:CXX>:--param=ggc-min-heapsize=1048576>")
endif()
if(TIDEMARK_SANITIZE)
  target_compile_options(tidemark_flags INTERFACE -fsanitize=${TIDEMARK_SANITIZE} -fno-omit-frame-pointer
                                                  -fno-sanitize-recover=all)
  target_link_options(tidemark_flags INTERFACE -fsanitize=${TIDEMARK_SANITIZE})
endif()

# False of what is inlined from a precompiled header; sanitizers, and `./dev test --full`, look for it.
set(TIDEMARK_PRECOMPILED_FLAGS "")
if(CMAKE_CXX_COMPILER_ID STREQUAL "GNU" AND NOT CMAKE_DISABLE_PRECOMPILE_HEADERS)
  set(TIDEMARK_PRECOMPILED_FLAGS
      "$<$<COMPILE_LANGUAGE:CXX>:-Wno-array-bounds;-Wno-stringop-overflow;-Wno-stringop-overread>")
endif()

# tidemark_precompile(TARGET headers...): what most of a target's files include, and these, is read once for all of them.
# It hides what a file forgot to include: `./dev test --full` compiles without.
function(tidemark_precompile target)
  target_compile_options(${target} PRIVATE ${TIDEMARK_PRECOMPILED_FLAGS})
  foreach(header algorithm functional map memory optional set string vector fmt/format.h ${ARGN})
    target_precompile_headers(${target} PRIVATE "$<$<COMPILE_LANGUAGE:CXX>:<${header}$<ANGLE-R>>")
  endforeach()
endfunction()

# tidemark_together(TARGET COUNT sources...): the files of a folder are compiled up to so many at a time, as most of what
# a compiler reads for one it reads for all: no two define the same name in their anonymous namespaces. Apart are the parts
# of a table (cmake/table.cmake), which may be alike, and what needs CUDA, as it includes much that others do not.
function(tidemark_together target count)
  set_target_properties(${target} PROPERTIES UNITY_BUILD ${TIDEMARK_UNITY} UNITY_BUILD_MODE GROUP)
  foreach(file IN LISTS ARGN)
    if(NOT file MATCHES "\\.cc$" OR file MATCHES "_cuda\\.cc$")
      continue()
    endif()
    cmake_path(GET file PARENT_PATH folder)
    file(RELATIVE_PATH group ${PROJECT_SOURCE_DIR} ${folder})
    string(MAKE_C_IDENTIFIER "${group}" group)
    math(EXPR count_${group} "0${count_${group}} + 1")
    math(EXPR batch "(${count_${group}} - 1) / ${count}")
    set_source_files_properties(${file} PROPERTIES UNITY_GROUP ${group}_${batch})
  endforeach()
endfunction()

# tidemark_folder(NAME [USES folders...] [LIBRARIES targets...] [PRECOMPILED headers...] [APART]): every source below the
# current folder, each compiled by itself where they are APART.
# <part>_cuda.cc needs the CUDA toolkit; <part>_none.cc stands in for it where there is none. Kernels (.cu) are C++ then,
# which runs on the host.
function(tidemark_folder name)
  cmake_parse_arguments(PART "APART" "" "USES;LIBRARIES;PRECOMPILED" ${ARGN})
  file(GLOB_RECURSE sources CONFIGURE_DEPENDS ${CMAKE_CURRENT_SOURCE_DIR}/*.cc ${CMAKE_CURRENT_SOURCE_DIR}/*.cu)
  if(TIDEMARK_HAS_CUDA)
    list(FILTER sources EXCLUDE REGEX "_none\\.cc$")
  else()
    list(FILTER sources EXCLUDE REGEX "_cuda\\.cc$")
    set(kernels ${sources})
    list(FILTER kernels INCLUDE REGEX "\\.cu$")
    set_source_files_properties(${kernels} PROPERTIES LANGUAGE CXX)
  endif()
  add_library(tidemark_${name} STATIC ${sources})
  if(NOT PART_APART)
    tidemark_together(tidemark_${name} 8 ${sources})
  endif()
  target_include_directories(tidemark_${name} PUBLIC ${PROJECT_SOURCE_DIR})
  target_link_libraries(tidemark_${name} PRIVATE tidemark_flags)
  foreach(used IN LISTS PART_USES)
    target_link_libraries(tidemark_${name} PUBLIC tidemark_${used})
  endforeach()
  target_link_libraries(tidemark_${name} PUBLIC ${PART_LIBRARIES})
  tidemark_precompile(tidemark_${name} ${PART_PRECOMPILED})
  set(cuda_parts ${sources})
  list(FILTER cuda_parts INCLUDE REGEX "_cuda\\.cc$")
  set_source_files_properties(${cuda_parts} PROPERTIES SKIP_PRECOMPILE_HEADERS ON)  # clang-tidy reads them as they are
  # With CMAKE_VERIFY_INTERFACE_HEADER_SETS each of these headers is also compiled alone: those that no source of the same
  # name begins with (tests/check_includes.py sees to it that it does).
  file(GLOB_RECURSE headers CONFIGURE_DEPENDS ${CMAKE_CURRENT_SOURCE_DIR}/*.h)
  set(begun ${sources})
  list(FILTER begun INCLUDE REGEX "\\.cc$")
  list(TRANSFORM begun REPLACE "\\.cc$" ".h")
  list(REMOVE_ITEM headers ${begun})
  if(NOT TIDEMARK_HAS_CUDA)
    list(FILTER headers EXCLUDE REGEX "_cuda\\.h$")
  endif()
  target_sources(tidemark_${name} PUBLIC FILE_SET HEADERS BASE_DIRS ${PROJECT_SOURCE_DIR} FILES ${headers})
endfunction()
