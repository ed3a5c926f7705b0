// SPDX-License-Identifier: Apache-2.0
#include "tests/kernels/cuda_cases/operators.h"

namespace tidemark::kernels::cuda {
namespace {

std::vector<Case> Join(std::initializer_list<std::vector<Case> (*)()> parts) {
  std::vector<Case> cases;
  for (const auto part : parts) {
    for (Case& one : part()) {
      cases.push_back(std::move(one));
    }
  }
  return cases;
}

}  // namespace

std::vector<Case> Cases() {
  return Join({PointwiseCases, NormalCases, NormCases, EagerNormCases, ActivationCases, GluCases, RopeCases,
               RotaryTableCases, AttentionCases, EmbeddingCases, DropoutCases, CrossEntropyCases, OptimizerCases,
               GradientClipCases, RowWeightsCases, LatentHeadsCases, ExpertRoutingCases, ExpertPermutationCases,
               CasesThatMultiply});
}

std::vector<Case> CasesThatMultiply() {
  return Join({GemmCases, LinearCases, ExpertLinearCases, RowGateCases, InfoNceCases, EagerAttentionCases});
}

}  // namespace tidemark::kernels::cuda
