// SPDX-License-Identifier: Apache-2.0
#include "profiler/comm/staged.h"

#include <cstddef>
#include <deque>
#include <utility>
#include <vector>

namespace tidemark {
namespace {

class StagedCommunicator final : public Communicator {
 public:
  StagedCommunicator(std::unique_ptr<Communicator> host, DeviceCopies copies)
      : host_(std::move(host)), copies_(std::move(copies)) {}

  std::int64_t rank() const override { return host_->rank(); }
  std::int64_t size() const override { return host_->size(); }
  Status Connect(std::span<const Route> routes) override { return host_->Connect(routes); }

  Result<Ticket> Begin(const Exchange& exchange) override {
    UnderWay one;
    const Bytes element = SizeOf(exchange.dtype);
    const Bytes whole = element * exchange.elements, part = element * exchange.PartOf(rank(), size());
    Bytes read = whole, written = whole;
    const void* from = exchange.from;
    switch (exchange.kind) {
      case CollectiveKind::reduce_scatter:
        written = part;
        break;
      case CollectiveKind::all_gather:
        read = part;
        break;
      case CollectiveKind::broadcast:
        from = exchange.to;
        read = exchange.root == rank() ? whole : Bytes(0);
        break;
      default:
        break;
    }
    one.from.resize(Size(read));
    one.to.resize(Size(written));
    if (read > Bytes(0)) {
      TIDEMARK_TRY(copies_.fetch(from, one.from.data(), read, exchange.stream));
    }
    Exchange inner = exchange;
    inner.from = one.from.data();
    inner.to = one.to.data();
    inner.stream = nullptr;
    one.device = exchange.to;
    one.stream = exchange.stream;
    if (exchange.kind == CollectiveKind::broadcast) {
      if (exchange.root == rank()) {
        one.to.swap(one.from);
        one.device = nullptr;
      }
      inner.from = inner.to = one.to.data();
    }
    TIDEMARK_ASSIGN(one.inner, host_->Begin(inner));
    return Keep(std::move(one));
  }

  Status Finish(Ticket ticket) override {
    if (ticket >= under_way_.size() || under_way_[ticket].done) {
      return Done{};
    }
    UnderWay& one = under_way_[ticket];
    TIDEMARK_TRY(host_->Finish(one.inner));
    if (one.device != nullptr && !one.to.empty()) {
      TIDEMARK_TRY(copies_.put(one.to.data(), one.device, Bytes(std::ssize(one.to)), one.stream));
    }
    one = {};
    one.done = true;
    while (!under_way_.empty() && under_way_.back().done) {
      under_way_.pop_back();
    }
    return Done{};
  }

  Status Send(const Message& message, const void* data) override {
    std::vector<char> bytes(Size(BytesOf(message)));
    TIDEMARK_TRY(copies_.fetch(data, bytes.data(), BytesOf(message), message.stream));
    return host_->Send(OnHost(message), bytes.data());
  }

  Result<Ticket> Receive(const Message& message, void* data) override {
    UnderWay one;
    one.to.resize(Size(BytesOf(message)));
    one.device = data;
    one.stream = message.stream;
    TIDEMARK_ASSIGN(one.inner, host_->Receive(OnHost(message), one.to.data()));
    return Keep(std::move(one));
  }

 private:
  struct UnderWay {
    Ticket inner = 0;
    std::vector<char> from, to;  ///< on the host
    void* device = nullptr;      ///< where `to` goes; nullptr: nowhere
    void* stream = nullptr;
    bool done = false;
  };

  static std::size_t Size(Bytes bytes) { return static_cast<std::size_t>(bytes.count()); }
  static Bytes BytesOf(const Message& message) { return SizeOf(message.dtype) * message.elements; }
  static Message OnHost(Message message) {
    message.stream = nullptr;
    return message;
  }

  Ticket Keep(UnderWay one) {
    under_way_.push_back(std::move(one));  // a moved vector's memory stays where it is
    return under_way_.size() - 1;
  }

  std::unique_ptr<Communicator> host_;
  DeviceCopies copies_;
  std::deque<UnderWay> under_way_;  ///< by ticket; those that are done at the end are dropped
};

}  // namespace

std::unique_ptr<Communicator> MakeStagedCommunicator(std::unique_ptr<Communicator> host, DeviceCopies copies) {
  return std::make_unique<StagedCommunicator>(std::move(host), std::move(copies));
}

}  // namespace tidemark
