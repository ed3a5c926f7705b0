// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <utility>
#include <vector>

#include "profiler/device/host_device.h"

namespace tidemark {

/// A device that is not synchronous, on which time is what was counted: each work takes as long, and nothing else does.
class CountedDevice : public HostDevice {
 public:
  explicit CountedDevice(Nanos each) : each_(each) {}

  void Pass(Nanos time) { now_ += time; }
  std::int64_t works() const { return works_; }

  void Give(std::uint32_t stream, Work work) override {
    HostDevice::Give(stream, std::move(work));
    Pass(each_);
    ++works_;
  }
  bool is_synchronous() const override { return false; }
  Mark MarkIn(std::uint32_t) override {
    marks_.push_back(now_);
    return marks_.size() - 1;
  }
  Nanos Between(Mark from, Mark to) override { return marks_.at(to) - marks_.at(from); }
  void DropMarks() override { marks_.clear(); }

 private:
  Nanos each_, now_;
  std::int64_t works_ = 0;
  std::vector<Nanos> marks_;
};

}  // namespace tidemark
