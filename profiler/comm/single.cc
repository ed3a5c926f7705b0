// SPDX-License-Identifier: Apache-2.0
#include <cstdlib>
#include <cstring>
#include <deque>
#include <map>
#include <vector>

#include "profiler/comm/communicator.h"

namespace tidemark {
namespace {

/// Of one rank: every collective is a copy, and every message is its own.
class SingleCommunicator final : public Communicator {
 public:
  std::int64_t rank() const override { return 0; }
  std::int64_t size() const override { return 1; }
  Result<Ticket> Begin(const Exchange& exchange) override {
    if (exchange.from != exchange.to) {
      const Bytes bytes = SizeOf(exchange.dtype) * exchange.elements;
      std::memcpy(exchange.to, exchange.from, static_cast<std::size_t>(bytes.count()));
    }
    return Ticket{0};
  }
  Status Finish(Ticket) override { return Done{}; }
  Status Send(const Message& message, const void* data) override {
    const auto* bytes = static_cast<const char*>(data);
    sent_[message.tag].emplace_back(bytes, bytes + BytesOf(message));
    return Done{};
  }
  Result<Ticket> Receive(const Message& message, void* data) override {
    std::deque<std::vector<char>>& sent = sent_[message.tag];
    if (sent.empty() || sent.front().size() != BytesOf(message)) {
      return Error{ErrorCode::internal, "", "a rank waits for a message of its own that it has not sent",
                   "the program is wrong: please report the job"};
    }
    std::memcpy(data, sent.front().data(), sent.front().size());
    sent.pop_front();
    return Ticket{0};
  }

 private:
  static std::size_t BytesOf(const Message& message) {
    return static_cast<std::size_t>((SizeOf(message.dtype) * message.elements).count());
  }

  std::map<std::int64_t, std::deque<std::vector<char>>> sent_;  ///< to itself, by tag
};

class SingleWorld final : public World {
 public:
  std::int64_t rank() const override { return 0; }
  std::int64_t size() const override { return 1; }
  std::int64_t ranks_here() const override { return 1; }
  Result<std::unique_ptr<Communicator>> Split(std::int64_t) override {
    return std::unique_ptr<Communicator>(std::make_unique<SingleCommunicator>());
  }
  double Highest(double value) override { return value; }
  double Sum(double value) override { return value; }
  std::vector<std::string> GatherTexts(const std::string& text) override { return {text}; }
  void Abort(int exit_code) override { std::exit(exit_code); }
};

}  // namespace

std::unique_ptr<World> MakeSingleWorld() { return std::make_unique<SingleWorld>(); }

}  // namespace tidemark
