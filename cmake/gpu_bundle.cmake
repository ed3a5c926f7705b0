# A folder that runs on a machine with a GPU, the CUDA toolkit's libraries and nothing else of ours:
#   cmake --install BUILD --component gpu_bundle --strip --prefix BUNDLE
# (Without the component, the program alone is installed: cli/CMakeLists.txt.)
# The program, the device tests and the experiments, and beside them, in lib/, every shared library that they need but
# CUDA's and the C library's, which are that machine's own (glibc 2.36 or later).
set(TIDEMARK_OF_THE_MACHINE "^ld-linux" "^lib(c|m|dl|rt|pthread|resolv|util)[.]so" "^lib(cu|nv|nccl)")
set_target_properties(tidemark gpu_test gpu_ranks memory_experiment PROPERTIES INSTALL_RPATH "$ORIGIN/lib")
install(TARGETS tidemark gpu_test gpu_ranks memory_experiment RUNTIME_DEPENDENCY_SET bundled RUNTIME DESTINATION . COMPONENT gpu_bundle EXCLUDE_FROM_ALL)
install(RUNTIME_DEPENDENCY_SET bundled DESTINATION lib COMPONENT gpu_bundle EXCLUDE_FROM_ALL PRE_EXCLUDE_REGEXES ${TIDEMARK_OF_THE_MACHINE})
find_program(TIDEMARK_PATCHELF patchelf)
include(cmake/gpu_bundle_mpi.cmake)
# Some know a folder of this machine (Open MPI's do), where they would look for the others.
install(CODE "
  file(GLOB libraries \"\${CMAKE_INSTALL_PREFIX}/lib/*\")
  execute_process(COMMAND ${TIDEMARK_PATCHELF} --set-rpath $ORIGIN \${libraries} COMMAND_ERROR_IS_FATAL ANY)"
        COMPONENT gpu_bundle EXCLUDE_FROM_ALL)
install(PROGRAMS tests/gpu/run_experiments.py DESTINATION . RENAME run COMPONENT gpu_bundle EXCLUDE_FROM_ALL)
install(DIRECTORY tests/jobs DESTINATION . COMPONENT gpu_bundle EXCLUDE_FROM_ALL)
install(DIRECTORY tests/gpu DESTINATION experiments COMPONENT gpu_bundle
        EXCLUDE_FROM_ALL FILES_MATCHING PATTERN "*.py" PATTERN "*_test.py" EXCLUDE PATTERN "recorded" EXCLUDE PATTERN "__pycache__" EXCLUDE)
install(FILES tests/bench/against_pytorch.py tests/bench/torch_decoder.py DESTINATION experiments/bench COMPONENT gpu_bundle EXCLUDE_FROM_ALL)
install(FILES CHANGELOG.md DESTINATION experiments COMPONENT gpu_bundle EXCLUDE_FROM_ALL)  # a text to learn from
