#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# The bundle's mpirun, which tells Open MPI where its parts lie. Ranks are this machine's own.
here=$(cd "${0%/*}" && pwd)
export OPAL_PREFIX="$here/mpi" OPAL_LIBDIR="$here/lib" OPAL_PKGLIBDIR="$here/mpi/plugins" OPAL_PKGDATADIR="$here/mpi/share"
export PMIX_PKGLIBDIR="$here/mpi/pmix" PMIX_PKGDATADIR="$here/mpi/share"
export OMPI_MCA_plm=isolated  # nothing is started elsewhere, by ssh or a batch system
exec "$here/mpi/mpirun" "$@"
