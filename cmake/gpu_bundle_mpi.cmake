# Open MPI in the bundle, for several ranks on one GPU where NCCL does not take that: mpirun beside the programs, and in
# mpi/ what the library loads when it starts, found by variables that mpirun's wrapper sets. Left out: networks, batch
# systems, files and SHMEM programs. Nothing of another MPI is bundled: there mpirun is that machine's own.
find_program(TIDEMARK_OMPI_INFO ompi_info)
find_program(TIDEMARK_MPIRUN mpirun)
foreach(path pkglibdir pkgdatadir)
  set(TIDEMARK_MPI_${path} "")
  if(TIDEMARK_OMPI_INFO)
    execute_process(COMMAND ${TIDEMARK_OMPI_INFO} --parsable --path ${path} OUTPUT_VARIABLE said
                    OUTPUT_STRIP_TRAILING_WHITESPACE ERROR_QUIET)
    string(REGEX REPLACE "^path:${path}:" "" TIDEMARK_MPI_${path} "${said}")
  endif()
endforeach()
file(GLOB TIDEMARK_PMIX_PLUGINS /usr/lib/*/pmix2/lib/pmix/*.so)
if(IS_DIRECTORY "${TIDEMARK_MPI_pkglibdir}")
  file(GLOB plugins ${TIDEMARK_MPI_pkglibdir}/mca_*.so)
  list(FILTER plugins EXCLUDE REGEX "(ofi|openib|psm2?|ucx|flux|slurm|netlink|monitoring)\\.so$")
  list(FILTER plugins EXCLUDE REGEX "mca_(mtl|atomic|memheap|scoll|spml|sshmem|io|fs|fbtl|fcoll|sharedfp|vprotocol)_")
  list(FILTER plugins EXCLUDE REGEX "(pml_cm|op_avx|topo_treematch|plm_rsh|coll_(han|adapt))\\.so$")
  file(REAL_PATH ${TIDEMARK_MPIRUN} mpirun)
  file(GLOB texts ${TIDEMARK_MPI_pkgdatadir}/*.txt)
  install(FILES ${plugins} DESTINATION mpi/plugins COMPONENT gpu_bundle EXCLUDE_FROM_ALL)
  install(FILES ${TIDEMARK_PMIX_PLUGINS} DESTINATION mpi/pmix COMPONENT gpu_bundle EXCLUDE_FROM_ALL)
  install(FILES ${texts} DESTINATION mpi/share COMPONENT gpu_bundle EXCLUDE_FROM_ALL)
  install(PROGRAMS ${mpirun} DESTINATION mpi RENAME mpirun COMPONENT gpu_bundle EXCLUDE_FROM_ALL)
  install(PROGRAMS ${PROJECT_SOURCE_DIR}/tests/gpu/mpirun.sh DESTINATION . RENAME mpirun COMPONENT gpu_bundle EXCLUDE_FROM_ALL)
  install(CODE "
    set(excluded \"${TIDEMARK_OF_THE_MACHINE}\")
    file(GET_RUNTIME_DEPENDENCIES EXECUTABLES ${mpirun} LIBRARIES ${plugins} ${TIDEMARK_PMIX_PLUGINS}
         RESOLVED_DEPENDENCIES_VAR needed PRE_EXCLUDE_REGEXES \${excluded})
    foreach(library IN LISTS needed)
      file(INSTALL \${library} DESTINATION \${CMAKE_INSTALL_PREFIX}/lib FOLLOW_SYMLINK_CHAIN)
    endforeach()
    file(GLOB loaded \"\${CMAKE_INSTALL_PREFIX}/mpi/plugins/*\" \"\${CMAKE_INSTALL_PREFIX}/mpi/pmix/*\")
    execute_process(COMMAND ${TIDEMARK_PATCHELF} --set-rpath $ORIGIN/../../lib \${loaded} COMMAND_ERROR_IS_FATAL ANY)
    execute_process(COMMAND ${TIDEMARK_PATCHELF} --set-rpath $ORIGIN/../lib \${CMAKE_INSTALL_PREFIX}/mpi/mpirun
                    COMMAND_ERROR_IS_FATAL ANY)" COMPONENT gpu_bundle EXCLUDE_FROM_ALL)
endif()
