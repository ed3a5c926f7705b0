// SPDX-License-Identifier: Apache-2.0
#include "profiler/device/machine_memory.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cstdint>
#include <fstream>
#include <limits>
#include <string_view>

namespace tidemark {
namespace {

/// The number behind a word, as in "MemAvailable:   1024 kB".
std::optional<std::int64_t> NumberBehind(std::string_view word, const std::string& path) {
  std::ifstream file(path);
  std::string key;
  while (file >> key) {
    if (std::int64_t number = 0; key == word && file >> number) {
      return number;
    }
  }
  return std::nullopt;
}

/// The number that a file begins with; none: there is no such file, or it says "max".
std::optional<std::int64_t> NumberIn(const std::string& path) {
  std::ifstream file(path);
  std::int64_t number = 0;
  return file >> number ? std::optional(number) : std::nullopt;
}

/// Where cgroups are mounted, and the names of their files; in memory.stat, of what can be reclaimed ("": no more).
struct CgroupFiles {
  std::string_view mount, limit, usage;
  std::array<std::string_view, 3> reclaimable;
};
constexpr CgroupFiles kCgroupV1{"/sys/fs/cgroup/memory",
                                "memory.limit_in_bytes",
                                "memory.usage_in_bytes",
                                {"total_inactive_file", "total_active_file"}};
constexpr CgroupFiles kCgroupV2{
    "/sys/fs/cgroup", "memory.max", "memory.current", {"inactive_file", "active_file", "slab_reclaimable"}};

/// What is left of the limits of a cgroup and of those around it. A container may see its own as the outermost one,
/// whatever it is called outside.
std::int64_t LeftIn(const CgroupFiles& files, std::string cgroup, const std::string& root) {
  std::int64_t left = std::numeric_limits<std::int64_t>::max();
  while (true) {
    const std::string folder = fmt::format("{}{}{}/", root, files.mount, cgroup);
    const auto limit = NumberIn(fmt::format("{}{}", folder, files.limit));
    const auto usage = NumberIn(fmt::format("{}{}", folder, files.usage));
    if (limit && usage) {
      std::int64_t kept = *usage;
      for (const std::string_view reclaimable : files.reclaimable) {
        kept -= NumberBehind(reclaimable, folder + "memory.stat").value_or(0);
      }
      left = std::min(left, std::max<std::int64_t>(*limit - std::max<std::int64_t>(kept, 0), 0));
    }
    if (cgroup.empty()) {
      return left;
    }
    cgroup.resize(cgroup.rfind('/'));
  }
}

}  // namespace

std::optional<Bytes> AvailableMemory(const std::string& root) {
  constexpr std::int64_t kKibi = 1024;
  const auto kibibytes = NumberBehind("MemAvailable:", root + "/proc/meminfo");
  if (!kibibytes) {
    return std::nullopt;
  }
  std::int64_t available = *kibibytes * kKibi;
  std::ifstream cgroups(root + "/proc/self/cgroup");  // "4:memory:/a/b" of v1, "0::/a/b" of v2
  for (std::string line; std::getline(cgroups, line);) {
    const std::size_t first = line.find(':'), second = line.find(':', first + 1);
    if (second == std::string::npos || line[second + 1] != '/') {
      continue;
    }
    const std::string controllers = "," + line.substr(first + 1, second - first - 1) + ",";
    const std::string cgroup = line.substr(second + 1) == "/" ? "" : line.substr(second + 1);
    if (controllers == ",,") {
      available = std::min(available, LeftIn(kCgroupV2, cgroup, root));
    } else if (controllers.find(",memory,") != std::string::npos) {
      available = std::min(available, LeftIn(kCgroupV1, cgroup, root));
    }
  }
  return Bytes(available);
}

}  // namespace tidemark
