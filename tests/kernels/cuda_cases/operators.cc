// SPDX-License-Identifier: Apache-2.0
#include "tests/kernels/cuda_cases/operators.h"

namespace tidemark::kernels::cuda {

std::vector<Case> Cases() {
  std::vector<Case> cases;
  for (const auto part : {PointwiseCases, NormCases, EagerNormCases, ActivationCases, GluCases, RopeCases,
                          EmbeddingCases, DropoutCases, CrossEntropyCases, OptimizerCases, GradientClipCases}) {
    for (Case& one : part()) {
      cases.push_back(std::move(one));
    }
  }
  return cases;
}

}  // namespace tidemark::kernels::cuda
