// SPDX-License-Identifier: Apache-2.0
#include "profiler/capture/nvtx_annotations.h"

namespace tidemark {

std::unique_ptr<Annotations> MakeNvtxAnnotations() { return nullptr; }

}  // namespace tidemark
