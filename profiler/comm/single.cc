// SPDX-License-Identifier: Apache-2.0
#include <cstdlib>
#include <cstring>

#include "profiler/comm/communicator.h"

namespace tidemark {
namespace {

/// Of one rank: every collective is a copy.
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
};

class SingleWorld final : public World {
 public:
  std::int64_t rank() const override { return 0; }
  std::int64_t size() const override { return 1; }
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
