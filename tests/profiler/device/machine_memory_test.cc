// SPDX-License-Identifier: Apache-2.0
#include "profiler/device/machine_memory.h"

#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>
#include <string>

namespace tidemark::machine_memory_test {
namespace {

/// Files of a machine that has 1000 KiB to spare.
class MachineMemory : public testing::Test {
 protected:
  MachineMemory() {
    Write("/proc/meminfo", "MemTotal:        4000 kB\nMemFree:          100 kB\nMemAvailable:    1000 kB\n");
  }
  ~MachineMemory() override { std::filesystem::remove_all(root_); }

  void Write(const std::string& path, const std::string& text) const {
    std::filesystem::create_directories(std::filesystem::path(root_ + path).parent_path());
    std::ofstream(root_ + path) << text;
  }
  std::int64_t Available() const { return AvailableMemory(root_).count(); }

 private:
  const std::string root_ =
      testing::TempDir() + "machine_memory_" + testing::UnitTest::GetInstance()->current_test_info()->name();
};

TEST_F(MachineMemory, IsWhatTheSystemHasToSpare) {
  EXPECT_EQ(Available(), 1'024'000);
  Write("/proc/self/cgroup", "0::/\n");
  EXPECT_EQ(Available(), 1'024'000);
}

TEST_F(MachineMemory, IsNotKnownWhereTheSystemDoesNotSay) { EXPECT_EQ(AvailableMemory("/nowhere").count(), 0); }

TEST_F(MachineMemory, IsWhatIsLeftOfTheTightestGroupAroundIt) {
  Write("/proc/self/cgroup", "0::/batch/job_7\n");
  Write("/sys/fs/cgroup/batch/job_7/memory.max", "max\n");
  Write("/sys/fs/cgroup/batch/job_7/memory.current", "70000\n");
  EXPECT_EQ(Available(), 1'024'000);
  Write("/sys/fs/cgroup/batch/memory.max", "500000\n");
  Write("/sys/fs/cgroup/batch/memory.current", "90000\n");
  EXPECT_EQ(Available(), 410'000);
  Write("/sys/fs/cgroup/batch/memory.stat", "anon 60000\nfile 30000\nactive_file 10000\ninactive_file 20000\n");
  EXPECT_EQ(Available(), 430'000);
  Write("/sys/fs/cgroup/batch/job_7/memory.max", "60000\n");  // lowered below what it uses
  EXPECT_EQ(Available(), 0);
}

TEST_F(MachineMemory, IsThatOfAContainerThatSeesItsGroupAsTheOutermost) {
  Write("/proc/self/cgroup", "0::/\n");
  Write("/sys/fs/cgroup/memory.max", "200000\n");
  Write("/sys/fs/cgroup/memory.current", "50000\n");
  EXPECT_EQ(Available(), 150'000);
}

TEST_F(MachineMemory, KnowsTheFirstVersionOfGroups) {
  Write("/proc/self/cgroup", "9:name=systemd:/\n4:cpu,memory:/docker/5f\n3:cpuset:/\n0::/\n");
  Write("/sys/fs/cgroup/memory/memory.limit_in_bytes", "300000\n");
  Write("/sys/fs/cgroup/memory/memory.usage_in_bytes", "100000\n");
  Write("/sys/fs/cgroup/memory/memory.stat", "inactive_file 1\ntotal_inactive_file 5000\n");
  EXPECT_EQ(Available(), 205'000);
  Write("/sys/fs/cgroup/memory/memory.limit_in_bytes", "9223372036854771712\n");  // none
  EXPECT_EQ(Available(), 1'024'000);
}

}  // namespace
}  // namespace tidemark::machine_memory_test
