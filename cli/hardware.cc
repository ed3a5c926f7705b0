// SPDX-License-Identifier: Apache-2.0
#include "cli/hardware.h"

#include <sys/utsname.h>
#include <unistd.h>

#include "cli/opened_device.h"
#include "profiler/device/gpu_description.h"

namespace tidemark {
namespace {

std::map<std::string, std::string> DescribeProcessor() {
  utsname system{};
  uname(&system);
  return {{"device", "cpu"}, {"architecture", system.machine}, {"page_bytes", std::to_string(sysconf(_SC_PAGE_SIZE))}};
}

}  // namespace

std::map<std::string, std::string> DescribeHardware(const std::string& device) {
  if (device != kCuda) {
    return DescribeProcessor();
  }
  const Result<int> gpu = GpuOfThisRank();
  const GpuDescription found = gpu ? DescribeGpu(*gpu) : GpuDescription();
  return {{"device", kCuda},
          {"name", found.name},
          {"driver", found.driver},
          {"cuda", found.cuda},
          {"memory_bytes", std::to_string(found.memory.count())}};
}

}  // namespace tidemark
