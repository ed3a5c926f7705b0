// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>
#include <vector>

#include "base/result.h"
#include "models/job/job_template.h"

namespace tidemark {

/// The job that a sweep starts from. Whether it is one by itself does not matter: what is varied (`vary`, as --vary has
/// it) may be what is wrong with it, or what it lacks; it is then the job with the first values.
Result<Job> SweepBase(JobTemplate& job, const std::vector<std::string>& vary);

}  // namespace tidemark
