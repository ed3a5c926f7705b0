# TIDEMARK_HAS_CUDA: there is a CUDA toolkit, so the CUDA parts are built. That takes no GPU and no driver.

set(TIDEMARK_CUDA AUTO CACHE STRING "CUDA parts: AUTO (where there is a toolkit), ON (fail without one), OFF")
set_property(CACHE TIDEMARK_CUDA PROPERTY STRINGS AUTO ON OFF)
set(CMAKE_CUDA_ARCHITECTURES 90 CACHE STRING "GPU generations to compile for; never left to the toolkit's default")

option(TIDEMARK_OPTIMISE_DEVICE "Optimise what runs on a GPU; compiling that takes three times as long" ON)

set(TIDEMARK_HAS_CUDA OFF)
if(TIDEMARK_CUDA)
  if(NOT DEFINED ENV{CUDACXX} AND NOT CMAKE_CUDA_COMPILER)
    find_program(TIDEMARK_NVCC nvcc HINTS $ENV{CUDA_HOME}/bin /usr/local/cuda/bin)
    if(TIDEMARK_NVCC)
      set(ENV{CUDACXX} ${TIDEMARK_NVCC})
    endif()
  endif()
  include(CheckLanguage)
  check_language(CUDA)
  if(CMAKE_CUDA_COMPILER)
    enable_language(CUDA)
    set(CMAKE_CUDA_STANDARD 20)  # behind the compiler's own check, in which CMake 3.25 refuses it
    set(CMAKE_CUDA_STANDARD_REQUIRED ON)
    if(NOT CMAKE_CUDA20_STANDARD_COMPILE_OPTION)  # nvcc has had it since 12.0, CMake knows since 3.26
      set(CMAKE_CUDA20_STANDARD_COMPILE_OPTION -std=c++20)
      set(CMAKE_CUDA20_EXTENSION_COMPILE_OPTION -std=c++20)
    endif()
    find_package(CUDAToolkit REQUIRED)
    # -O is of the half of a kernel's file that is for the host (nvcc --help): launches, and bodies that only tests run
    # there. -O3 makes compiling take a fifth longer.
    if(CMAKE_CUDA_FLAGS_RELEASE STREQUAL "-O3 -DNDEBUG")
      set(CMAKE_CUDA_FLAGS_RELEASE "-O1 -DNDEBUG")
    endif()
    if(NOT TIDEMARK_OPTIMISE_DEVICE AND CMAKE_CUDA_COMPILER_VERSION VERSION_GREATER_EQUAL 13)
      string(APPEND CMAKE_CUDA_FLAGS " -Ofc=max")
    endif()
    set(TIDEMARK_HAS_CUDA ON)
  elseif(NOT TIDEMARK_CUDA STREQUAL "AUTO")
    message(FATAL_ERROR "TIDEMARK_CUDA is ON, but there is no working nvcc; set CUDACXX to it, or TIDEMARK_CUDA=OFF.")
  endif()
endif()
message(STATUS "CUDA parts: ${TIDEMARK_HAS_CUDA}")
