// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <vector>

#include "models/configs/field.h"
#include "models/job/job.h"

namespace tidemark {

/// The keys "optimizer_step.*", with which MakeJobFields goes on.
void AddOptimizerStep(std::vector<Field<Job>>& fields);

}  // namespace tidemark
