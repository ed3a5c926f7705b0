// SPDX-License-Identifier: Apache-2.0
#include "profiler/device/machine_memory.h"

#include <algorithm>
#include <cstdint>
#include <fstream>
#include <limits>
#include <optional>
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

/// Where a version of the interface has its files, and how it calls them.
struct Interface {
  std::string_view folder, limit, used, given_back;
};
constexpr Interface kFirst{"/sys/fs/cgroup/memory", "memory.limit_in_bytes", "memory.usage_in_bytes",
                           "total_inactive_file"};
constexpr Interface kSecond{"/sys/fs/cgroup", "memory.max", "memory.current", "inactive_file"};

/// What is left of the limits of a group and of those around it. A container may see its own group as the outermost
/// one, whatever it is called outside.
std::int64_t LeftIn(const Interface& version, std::string group, const std::string& root) {
  std::int64_t left = std::numeric_limits<std::int64_t>::max();
  while (true) {
    const std::string folder = root + std::string(version.folder) + group + "/";
    const auto limit = NumberIn(folder + std::string(version.limit));
    const auto used = NumberIn(folder + std::string(version.used));
    if (limit && used) {
      const std::int64_t given_back = NumberBehind(version.given_back, folder + "memory.stat").value_or(0);
      left = std::min(left, std::max<std::int64_t>(*limit - *used + std::min(given_back, *used), 0));
    }
    if (group.empty()) {
      return left;
    }
    group.resize(group.rfind('/'));
  }
}

}  // namespace

Bytes AvailableMemory(const std::string& root) {
  constexpr std::int64_t kKibi = 1024;
  std::int64_t available = NumberBehind("MemAvailable:", root + "/proc/meminfo").value_or(0) * kKibi;
  std::ifstream groups(root + "/proc/self/cgroup");  // "4:memory:/a/b" of the first version, "0::/a/b" of the second
  for (std::string line; available > 0 && std::getline(groups, line);) {
    const std::size_t first = line.find(':'), second = line.find(':', first + 1);
    if (second == std::string::npos || line[second + 1] != '/') {
      continue;
    }
    const std::string controllers = "," + line.substr(first + 1, second - first - 1) + ",";
    const std::string group = line.substr(second + 1) == "/" ? "" : line.substr(second + 1);
    if (controllers == ",,") {
      available = std::min(available, LeftIn(kSecond, group, root));
    } else if (controllers.find(",memory,") != std::string::npos) {
      available = std::min(available, LeftIn(kFirst, group, root));
    }
  }
  return Bytes(available);
}

}  // namespace tidemark
