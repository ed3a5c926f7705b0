// SPDX-License-Identifier: Apache-2.0
#include "profiler/device/machine_memory.h"

#include <gtest/gtest.h>

#include <unistd.h>

#include <cstdint>
#include <filesystem>
#include <fstream>
#include <string>

namespace tidemark::machine_memory_test {
namespace {

/// Files of a machine that has 1000 KiB to spare.
class MachineMemory : public testing::Test {
 protected:
  MachineMemory() {
    std::filesystem::remove_all(root_);
    Write("/proc/meminfo", "MemTotal:        4000 kB\nMemFree:          100 kB\nMemAvailable:    1000 kB\n");
  }
  ~MachineMemory() override { std::filesystem::remove_all(root_); }

  void Write(const std::string& path, const std::string& text) const {
    std::filesystem::create_directories(std::filesystem::path(root_ + path).parent_path());
    std::ofstream(root_ + path) << text;
  }
  std::int64_t Available() const { return AvailableMemory(root_).value().count(); }

  const std::string& root() const { return root_; }

 private:
  const std::string root_ = testing::TempDir() + "machine_memory_" + std::to_string(::getpid());
};

TEST_F(MachineMemory, IsWhatTheSystemHasToSpare) {
  EXPECT_EQ(Available(), 1'024'000);
  Write("/proc/self/cgroup", "0::/\n");
  EXPECT_EQ(Available(), 1'024'000);
}

TEST_F(MachineMemory, IsNotKnownWhereTheSystemDoesNotSay) { EXPECT_FALSE(AvailableMemory("/nowhere")); }

TEST_F(MachineMemory, IsWhatIsLeftOfTheTightestCgroupAroundIt) {
  Write("/proc/self/cgroup", "0::/batch/job_7\n");
  Write("/sys/fs/cgroup/batch/job_7/memory.max", "max\n");
  Write("/sys/fs/cgroup/batch/job_7/memory.current", "70000\n");
  EXPECT_EQ(Available(), 1'024'000);
  Write("/sys/fs/cgroup/batch/memory.max", "500000\n");
  Write("/sys/fs/cgroup/batch/memory.current", "90000\n");
  EXPECT_EQ(Available(), 410'000);
  Write("/sys/fs/cgroup/batch/memory.stat",
        "anon 50000\nfile 30000\nactive_file 10000\ninactive_file 20000\nslab_reclaimable 5000\nslab 9000\n");
  EXPECT_EQ(Available(), 445'000);
  Write("/sys/fs/cgroup/batch/job_7/memory.max", "60000\n");  // lowered below what it uses
  EXPECT_EQ(Available(), 0) << "known, and nothing";
}

TEST_F(MachineMemory, IsThatOfAContainerThatSeesItsCgroupAsTheOutermost) {
  Write("/proc/self/cgroup", "0::/\n");
  Write("/sys/fs/cgroup/memory.max", "200000\n");
  Write("/sys/fs/cgroup/memory.current", "50000\n");
  EXPECT_EQ(Available(), 150'000);
}

TEST_F(MachineMemory, KnowsCgroupsOfV1) {
  Write("/proc/self/cgroup", "9:name=systemd:/\n4:cpu,memory:/docker/5f\n3:cpuset:/\n0::/\n");
  Write("/sys/fs/cgroup/memory/memory.limit_in_bytes", "300000\n");
  Write("/sys/fs/cgroup/memory/memory.usage_in_bytes", "100000\n");
  Write("/sys/fs/cgroup/memory/memory.stat", "inactive_file 1\ntotal_inactive_file 5000\ntotal_active_file 700\n");
  EXPECT_EQ(Available(), 205'700);
  Write("/sys/fs/cgroup/memory/docker/5f/memory.limit_in_bytes", "80000\n");
  Write("/sys/fs/cgroup/memory/docker/5f/memory.usage_in_bytes", "10000\n");
  EXPECT_EQ(Available(), 70'000);
  std::filesystem::remove_all(root() + "/sys/fs/cgroup/memory/docker");
  Write("/sys/fs/cgroup/memory/memory.limit_in_bytes", "9223372036854771712\n");  // none
  EXPECT_EQ(Available(), 1'024'000);
}

}  // namespace
}  // namespace tidemark::machine_memory_test
