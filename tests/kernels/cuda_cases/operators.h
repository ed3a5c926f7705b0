// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "tests/kernels/cuda_cases/compare.h"

namespace tidemark::kernels::cuda {

// The parts of Cases(), one of each header.
std::vector<Case> PointwiseCases();
std::vector<Case> NormalCases();
std::vector<Case> NormCases();
std::vector<Case> EagerNormCases();
std::vector<Case> ActivationCases();
std::vector<Case> GluCases();
std::vector<Case> RopeCases();
std::vector<Case> RotaryTableCases();
std::vector<Case> AttentionCases();
std::vector<Case> EmbeddingCases();
std::vector<Case> DropoutCases();
std::vector<Case> CrossEntropyCases();
std::vector<Case> OptimizerCases();
std::vector<Case> GradientClipCases();
std::vector<Case> GemmCases();
std::vector<Case> LinearCases();
std::vector<Case> InfoNceCases();
std::vector<Case> EagerAttentionCases();
std::vector<Case> RowWeightsCases();
std::vector<Case> RowGateCases();
std::vector<Case> ExpertRoutingCases();
std::vector<Case> LatentHeadsCases();
std::vector<Case> ExpertPermutationCases();
std::vector<Case> ExpertLinearCases();

}  // namespace tidemark::kernels::cuda
