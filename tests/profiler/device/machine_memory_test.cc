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
  /// A cgroup ("/batch"; "": the outermost one) of either version.
  void WriteV1(const std::string& cgroup, const std::string& limit, const std::string& usage) const {
    Write("/sys/fs/cgroup/memory" + cgroup + "/memory.limit_in_bytes", limit);
    Write("/sys/fs/cgroup/memory" + cgroup + "/memory.usage_in_bytes", usage);
  }
  void WriteV2(const std::string& cgroup, const std::string& limit, const std::string& usage) const {
    Write("/sys/fs/cgroup" + cgroup + "/memory.max", limit);
    Write("/sys/fs/cgroup" + cgroup + "/memory.current", usage);
  }
  std::int64_t Available() const { return AvailableMemory(root_).value().count(); }

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
  WriteV2("/batch/job_7", "max\n", "70000\n");
  EXPECT_EQ(Available(), 1'024'000);
  WriteV2("/batch", "500000\n", "90000\n");
  EXPECT_EQ(Available(), 410'000);
  Write("/sys/fs/cgroup/batch/memory.stat",
        "anon 50000\nfile 30000\nactive_file 10000\ninactive_file 20000\nslab_reclaimable 5000\nslab 9000\n");
  EXPECT_EQ(Available(), 445'000);
  WriteV2("/batch/job_7", "60000\n", "70000\n");  // lowered below what it uses
  EXPECT_EQ(Available(), 0) << "known, and nothing";
}

TEST_F(MachineMemory, IsThatOfAContainerThatSeesItsCgroupAsTheOutermost) {
  Write("/proc/self/cgroup", "0::/\n");
  WriteV2("", "200000\n", "50000\n");
  EXPECT_EQ(Available(), 150'000);
}

TEST_F(MachineMemory, KnowsCgroupsOfV1) {
  Write("/proc/self/cgroup", "9:name=systemd:/\n4:cpu,memory:/docker/5f\n3:cpuset:/\n0::/\n");
  WriteV1("", "300000\n", "100000\n");
  Write("/sys/fs/cgroup/memory/memory.stat", "inactive_file 1\ntotal_inactive_file 5000\ntotal_active_file 700\n");
  EXPECT_EQ(Available(), 205'700);
  WriteV1("/docker/5f", "80000\n", "10000\n");
  EXPECT_EQ(Available(), 70'000);
}

TEST_F(MachineMemory, IsNotLimitedByACgroupOfV1WithoutALimit) {
  Write("/proc/self/cgroup", "4:memory:/docker/5f\n");
  WriteV1("", "9223372036854771712\n", "100000\n");  // the kernel's word for none
  EXPECT_EQ(Available(), 1'024'000);
}

}  // namespace
}  // namespace tidemark::machine_memory_test
