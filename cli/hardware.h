// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <map>
#include <string>

namespace tidemark {

/// What a measured peak depends on beside the job, part by part: "name", "driver". Peaks are comparable where all of it
/// is the same. `device` is that of ExecutionOptions. Of a processor, whose memory this program hands out itself, only
/// the architecture and the size of a page matter, not the model.
std::map<std::string, std::string> DescribeHardware(const std::string& device);

}  // namespace tidemark
