// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <algorithm>
#include <chrono>
#include <cstddef>
#include <cstring>
#include <deque>
#include <functional>
#include <memory>
#include <thread>
#include <utility>
#include <vector>

#include "base/check.h"
#include "profiler/device/host_device.h"
#include "profiler/device/host_memory.h"

namespace tidemark {

/// A processor with streams, like a GPU's, that does nothing before it must: when the host waits, or fetches. Then one
/// stream runs as far as it can before the next one begins, in the order that is worst for whoever relied on the order
/// of calls: what no mark holds back happens early or late.
class LazyDevice : public HostDevice {
 public:
  enum class First : std::uint8_t { lowest, highest };

  explicit LazyDevice(First first, kernels::Queue::Kind kind = kernels::Queue::Kind::cpu)
      : HostDevice(kind), first_(first) {}

  /// Memory goes back to the system when everything is done, as cuMemFree waits.
  std::unique_ptr<DeviceMemory> MemoryOf(Bytes capacity) override {
    auto memory = std::make_unique<HostMemory>(capacity);
    memory->BeforeGiving([this] { Synchronize(); });
    return memory;
  }
  std::unique_ptr<DeviceRoom> RoomFor(Bytes bytes) override {
    Synchronize();
    return HostDevice::RoomFor(bytes);
  }

  void Give(std::uint32_t stream, Work work) override {
    Put(stream, [this, stream, work = std::move(work)] { HostDevice::Give(stream, work); });
  }
  void* StreamOf(std::uint32_t stream) override { return reinterpret_cast<void*>(std::uintptr_t{stream} + 1); }
  static std::uint32_t IndexOf(void* stream) {
    return static_cast<std::uint32_t>(reinterpret_cast<std::uintptr_t>(stream) - 1);
  }
  void Put(std::uint32_t stream, const void* host, void* to, Bytes bytes) override {
    const auto* from = static_cast<const std::byte*>(host);
    Put(stream, [to, numbers = std::vector<std::byte>(from, from + bytes.count())] {
      std::copy(numbers.begin(), numbers.end(), static_cast<std::byte*>(to));
    });
  }
  void Fetch(std::uint32_t stream, const void* from, void* host, Bytes bytes) override {
    if (!runs_) {  // work that reads is behind what it reads already
      RunUntilEmpty(stream);
    }
    HostDevice::Fetch(stream, from, host, bytes);
  }

  /// Something in which other ranks take part: asked again and again, until it says that it is done.
  void Attempt(std::uint32_t stream, std::function<bool()> attempt) { At(stream).push_back({std::move(attempt)}); }

  bool is_synchronous() const override { return false; }
  Mark MarkIn(std::uint32_t stream) override {
    const Mark mark = marks_.size();
    marks_.push_back({stream, false});
    Put(stream, [this, mark] {
      marks_[mark].reached = true;
      marks_[mark].at = std::chrono::steady_clock::now();
    });
    return mark;
  }
  void WaitFor(std::uint32_t stream, Mark mark) override { At(stream).push_back({{}, mark}); }
  void Finish(std::uint32_t stream) override { RunUntilEmpty(stream); }
  void Synchronize() override {
    for (std::size_t i = 0; i < streams_.size(); ++i) {
      RunUntilEmpty(InOrder(i));
    }
  }
  Nanos Between(Mark from, Mark to) override {
    TIDEMARK_CHECK(marks_.at(from).reached && marks_.at(to).reached);
    const auto passed = marks_[to].at - marks_[from].at;
    return Nanos(std::chrono::duration_cast<std::chrono::nanoseconds>(passed).count());
  }
  void DropMarks() override { marks_.clear(); }

 private:
  struct Marked {
    std::uint32_t stream = 0;
    bool reached = false;
    std::chrono::steady_clock::time_point at{};
  };
  struct Item {
    std::function<bool()> attempt;  ///< none: waits for `mark`
    Mark mark = 0;
  };

  std::deque<Item>& At(std::uint32_t stream) {
    while (streams_.size() <= stream) {
      streams_.emplace_back();
    }
    return streams_[stream];
  }
  void Put(std::uint32_t stream, std::function<void()> run) {
    Attempt(stream, [run = std::move(run)] {
      run();
      return true;
    });
  }

  void RunUntilEmpty(std::uint32_t stream) {
    while (!At(stream).empty()) {
      if (!RunNext(stream)) {
        RunAnother();
      }
    }
  }
  /// Of a stream, or of the one that it waits for. False: what comes next takes other ranks.
  bool RunNext(std::uint32_t stream) {
    Item& item = At(stream).front();
    if (item.attempt) {
      runs_ = true;
      const bool done = item.attempt();
      runs_ = false;
      if (done) {
        At(stream).pop_front();
      }
      return done;
    }
    if (const Marked& mark = marks_.at(item.mark); !mark.reached) {
      return RunNext(mark.stream);
    }
    At(stream).pop_front();
    return true;
  }
  /// What other ranks wait for may be on any stream.
  void RunAnother() {
    for (std::size_t i = 0; i < streams_.size(); ++i) {
      const std::uint32_t stream = InOrder(i);
      if (!At(stream).empty() && RunNext(stream)) {
        return;
      }
    }
    std::this_thread::yield();
  }
  std::uint32_t InOrder(std::size_t i) const {
    return static_cast<std::uint32_t>(first_ == First::lowest ? i : streams_.size() - 1 - i);
  }

  First first_;
  std::deque<std::deque<Item>> streams_;
  std::vector<Marked> marks_;
  bool runs_ = false;
};

}  // namespace tidemark
