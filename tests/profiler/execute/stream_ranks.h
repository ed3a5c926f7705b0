// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <cstring>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "tests/profiler/execute/lazy_device.h"
#include "tests/profiler/execute/thread_ranks.h"

namespace tidemark {

/// Exchanges that a stream keeps in order, as NCCL's: what takes part in one is read when its rank's stream comes to
/// it, the result is written when all ranks' have, and the host never waits.
class StreamCommunicator final : public Communicator {
 public:
  StreamCommunicator(std::unique_ptr<Communicator> host, LazyDevice& device)
      : host_(std::move(host)),
        rendezvous_(static_cast<const ThreadCommunicator&>(*host_).rendezvous()),
        device_(device) {}

  std::int64_t rank() const override { return host_->rank(); }
  std::int64_t size() const override { return host_->size(); }
  bool on_stream() const override { return true; }

  Result<Ticket> Begin(const Exchange& exchange) override {
    const std::int64_t tag = -1 - begun_++;  // messages have none below zero
    const auto attempt = [this, exchange, tag, is_there = false]() mutable {
      if (!std::exchange(is_there, true)) {
        for (std::int64_t peer = 0; peer < size(); ++peer) {
          rendezvous_.Post({rank(), peer, tag}, Contribution(exchange));
        }
      }
      for (std::int64_t peer = 0; peer < size(); ++peer) {
        if (!rendezvous_.Has({peer, rank(), tag})) {
          return false;
        }
      }
      std::vector<std::vector<char>> read;
      std::vector<Exchange> all;
      for (std::int64_t peer = 0; peer < size(); ++peer) {
        Exchange& one = all.emplace_back(exchange);
        one.from = one.to = read.emplace_back(rendezvous_.Take({peer, rank(), tag})).data();
      }
      const std::vector<char> result = ResultOf(all, rank());
      std::memcpy(exchange.to, result.data(), result.size());
      return true;
    };
    device_.Attempt(LazyDevice::IndexOf(exchange.stream), attempt);
    return Ticket{0};
  }
  /// No exchange fails here.
  Status Finish(Ticket) override { return Done{}; }

  Status Send(const Message& message, const void* data) override {
    device_.Attempt(LazyDevice::IndexOf(message.stream), [this, message, data] {
      rendezvous_.Post({rank(), message.peer, message.tag}, Copy(data, message.dtype, message.elements));
      return true;
    });
    return Done{};
  }
  Result<Ticket> Receive(const Message& message, void* data) override {
    device_.Attempt(LazyDevice::IndexOf(message.stream), [this, message, data] {
      const Rendezvous::Way way{message.peer, rank(), message.tag};
      if (!rendezvous_.Has(way)) {
        return false;
      }
      const std::vector<char> bytes = rendezvous_.Take(way);
      std::memcpy(data, bytes.data(), bytes.size());
      return true;
    });
    return Ticket{0};
  }

 private:
  static std::vector<char> Copy(const void* data, DType dtype, std::int64_t elements) {
    const auto* from = static_cast<const char*>(data);
    return {from, from + (SizeOf(dtype) * elements).count()};
  }
  std::vector<char> Contribution(const Exchange& exchange) const {
    switch (exchange.kind) {
      case CollectiveKind::broadcast:
        return Copy(exchange.to, exchange.dtype, exchange.elements);
      case CollectiveKind::all_gather:
        return Copy(exchange.from, exchange.dtype, exchange.elements / size());
      default:
        return Copy(exchange.from, exchange.dtype, exchange.elements);
    }
  }

  std::unique_ptr<Communicator> host_;
  Rendezvous& rendezvous_;
  LazyDevice& device_;
  std::int64_t begun_ = 0;
};

/// Ranks on devices with streams, over threads that are ranks.
class DeviceWorld : public World {
 public:
  DeviceWorld(World& host, LazyDevice& device) : host_(host), device_(device) {}

  std::int64_t rank() const override { return host_.rank(); }
  std::int64_t size() const override { return host_.size(); }
  std::int64_t ranks_here() const override { return host_.ranks_here(); }
  double Highest(double value) override { return host_.Highest(value); }
  double Sum(double value) override { return host_.Sum(value); }
  std::vector<std::string> GatherTexts(const std::string& text) override { return host_.GatherTexts(text); }
  void Abort(int exit_code) override { host_.Abort(exit_code); }

 protected:
  World& host() const { return host_; }
  LazyDevice& device() const { return device_; }

 private:
  World& host_;
  LazyDevice& device_;
};

/// Whose exchanges keep the order of streams.
class StreamWorld final : public DeviceWorld {
 public:
  using DeviceWorld::DeviceWorld;
  Result<std::unique_ptr<Communicator>> Split(std::int64_t colour) override {
    TIDEMARK_ASSIGN(auto group, host().Split(colour));
    return std::unique_ptr<Communicator>(std::make_unique<StreamCommunicator>(std::move(group), device()));
  }
};

}  // namespace tidemark
