// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <gtest/gtest.h>

#include <Eigen/Core>
#include <algorithm>
#include <bit>
#include <cstdint>
#include <cstring>
#include <deque>
#include <functional>
#include <map>
#include <memory>
#include <string>
#include <tuple>
#include <utility>
#include <vector>

#include "profiler/comm/communicator.h"

namespace tidemark {

// Ranks of one group in one thread: a test lets each begin its exchange in turn, then each finish it. What an exchange
// does is taken from the words at Exchange, element by element.

inline double NumberAt(DType dtype, const void* data, std::int64_t i) {
  const auto* bytes = static_cast<const char*>(data) + (SizeOf(dtype) * i).count();
  const auto as = [&]<class T>(T value) {
    std::memcpy(&value, bytes, sizeof(value));
    return value;
  };
  switch (dtype) {
    case DType::fp64:
      return as(double());
    case DType::fp32:
      return static_cast<double>(as(float()));
    case DType::bf16:
      return static_cast<double>(std::bit_cast<float>(static_cast<std::uint32_t>(as(std::uint16_t())) << 16));
    case DType::int64:
      return static_cast<double>(as(std::int64_t()));
    case DType::int32:
      return as(std::int32_t());
    case DType::u8:
      return as(std::uint8_t());
    case DType::fp16:
      return static_cast<double>(as(Eigen::half()));
  }
  ADD_FAILURE() << "no test reads " << Name(dtype);
  return 0;
}

/// Of numbers that the type holds exactly.
inline void PutNumber(DType dtype, void* data, std::int64_t i, double number) {
  auto* bytes = static_cast<char*>(data) + (SizeOf(dtype) * i).count();
  const auto put = [&](auto value) { std::memcpy(bytes, &value, sizeof(value)); };
  switch (dtype) {
    case DType::fp64:
      return put(number);
    case DType::fp32:
      return put(static_cast<float>(number));
    case DType::bf16:
      return put(static_cast<std::uint16_t>(std::bit_cast<std::uint32_t>(static_cast<float>(number)) >> 16));
    case DType::int64:
      return put(static_cast<std::int64_t>(number));
    case DType::int32:
      return put(static_cast<std::int32_t>(number));
    case DType::u8:
      return put(static_cast<std::uint8_t>(number));
    case DType::fp16:
      return put(static_cast<Eigen::half>(number));
  }
  ADD_FAILURE() << "no test writes " << Name(dtype);
}

/// The reduction over all ranks of each element.
inline std::vector<double> ReducedOver(const std::vector<const void*>& ranks, DType dtype, std::int64_t elements,
                                       bool maximum) {
  std::vector<double> result;
  for (std::int64_t i = 0; i < elements; ++i) {
    double reduced = NumberAt(dtype, ranks[0], i);
    for (std::size_t rank = 1; rank < ranks.size(); ++rank) {
      const double other = NumberAt(dtype, ranks[rank], i);
      reduced = maximum ? std::max(reduced, other) : reduced + other;
    }
    result.push_back(reduced);
  }
  return result;
}

/// Numbers that go to `to` when all that is read has been read.
struct Written {
  DType dtype;
  void* to;
  std::vector<double> numbers{};

  void Put() const {
    for (std::size_t i = 0; i < numbers.size(); ++i) {
      PutNumber(dtype, to, static_cast<std::int64_t>(i), numbers[i]);
    }
  }
};

inline std::vector<double> NumbersAt(DType dtype, const void* data, std::int64_t elements) {
  std::vector<double> numbers;
  for (std::int64_t i = 0; i < elements; ++i) {
    numbers.push_back(NumberAt(dtype, data, i));
  }
  return numbers;
}

/// Each rank's part of what each has, in the order of ranks.
inline void DoAllToAll(const std::vector<Exchange>& exchanges) {
  const auto ranks = std::ssize(exchanges);
  std::vector<Written> all;
  for (std::int64_t to = 0; to < ranks; ++to) {
    Written& written = all.emplace_back(Written{exchanges[0].dtype, exchanges[static_cast<std::size_t>(to)].to});
    for (const Exchange& from : exchanges) {
      const std::vector<double> sent = NumbersAt(from.dtype, from.from, from.elements);
      const auto begin = sent.begin() + from.elements / ranks * to;
      written.numbers.insert(written.numbers.end(), begin, begin + from.elements / ranks);
    }
  }
  for (const Written& written : all) {
    written.Put();
  }
}

/// Does one exchange of all ranks.
inline void DoExchange(const std::vector<Exchange>& exchanges) {
  const auto ranks = std::ssize(exchanges);
  const Exchange& any = exchanges[0];
  if (any.kind == CollectiveKind::all_to_all) {
    return DoAllToAll(exchanges);
  }
  std::vector<const void*> from;
  std::vector<double> gathered;
  for (std::int64_t rank = 0; rank < ranks; ++rank) {
    const Exchange& own = exchanges[static_cast<std::size_t>(rank)];
    from.push_back(own.from);
    if (any.kind == CollectiveKind::all_gather) {
      const std::vector<double> part = NumbersAt(own.dtype, own.from, own.PartOf(rank, ranks));
      gathered.insert(gathered.end(), part.begin(), part.end());
    }
  }
  if (any.kind == CollectiveKind::broadcast) {
    gathered = NumbersAt(any.dtype, exchanges[static_cast<std::size_t>(any.root)].to, any.elements);
  } else if (any.kind != CollectiveKind::all_gather) {
    gathered = ReducedOver(from, any.dtype, any.elements, any.reduction == Reduction::max);
  }
  for (std::int64_t rank = 0; rank < ranks; ++rank) {
    const bool part = any.kind == CollectiveKind::reduce_scatter;
    const auto begin = gathered.begin() + (part ? any.BeginOf(rank, ranks) : 0);
    const auto end = part ? begin + any.PartOf(rank, ranks) : gathered.end();
    Written{any.dtype, exchanges[static_cast<std::size_t>(rank)].to, {begin, end}}.Put();
  }
}

class LoopedRanks {
 public:
  explicit LoopedRanks(std::int64_t ranks) : ranks_(ranks) {}

  std::unique_ptr<Communicator> Of(std::int64_t rank) { return std::make_unique<One>(*this, rank); }

 private:
  class One final : public Communicator {
   public:
    One(LoopedRanks& all, std::int64_t rank) : all_(all), rank_(rank) {}
    std::int64_t rank() const override { return rank_; }
    std::int64_t size() const override { return all_.ranks_; }
    Result<Ticket> Begin(const Exchange& exchange) override {
      all_.begun_[begun_].push_back(exchange);
      finish_.push_back([this, which = begun_++] { all_.Do(which); });
      return finish_.size() - 1;
    }
    Status Finish(Ticket ticket) override {
      std::exchange(finish_.at(ticket), [] {})();
      return Done{};
    }
    Status Send(const Message& message, const void* data) override {
      const auto* bytes = static_cast<const char*>(data);
      all_.sent_[{rank_, message.peer, message.tag}].emplace_back(
          bytes, bytes + (SizeOf(message.dtype) * message.elements).count());
      return Done{};
    }
    Result<Ticket> Receive(const Message& message, void* data) override {
      finish_.push_back([this, message, data] {
        auto& sent = all_.sent_[{message.peer, rank_, message.tag}];
        ASSERT_FALSE(sent.empty());
        std::memcpy(data, sent.front().data(), sent.front().size());
        sent.pop_front();
      });
      return finish_.size() - 1;
    }

   private:
    LoopedRanks& all_;
    std::int64_t rank_;
    std::size_t begun_ = 0;
    std::vector<std::function<void()>> finish_;
  };

  void Do(std::size_t which) {
    const std::vector<Exchange> exchanges = std::exchange(begun_[which], {});
    if (!exchanges.empty()) {  // else another rank has finished it for all
      ASSERT_EQ(std::ssize(exchanges), ranks_);
      DoExchange(exchanges);
    }
  }

  std::int64_t ranks_;
  std::map<std::size_t, std::vector<Exchange>> begun_;  ///< by rank, as a test lets them begin
  std::map<std::tuple<std::int64_t, std::int64_t, std::int64_t>, std::deque<std::vector<char>>> sent_;
};

/// An exchange and where its operands lie.
struct ExchangeCase {
  CollectiveKind kind;
  Reduction reduction;
  DType dtype;
  std::int64_t elements, ranks;
  bool in_place = false;
  std::int64_t root = 0;

  std::string Text() const {
    return std::string(Name(kind)) + " " + std::string(Name(reduction)) + " of " + std::to_string(elements) + " " +
           std::string(Name(dtype)) + " over " + std::to_string(ranks) + (in_place ? ", in place" : "");
  }
};

/// Two buffers of every rank, full of numbers that tell rank and place.
class ExchangeMemory {
 public:
  explicit ExchangeMemory(const ExchangeCase& one) : case_(one) {
    for (std::int64_t rank = 0; rank < case_.ranks; ++rank) {
      for (std::vector<std::vector<char>>* buffers : {&first_, &second_}) {
        std::vector<char>& buffer = buffers->emplace_back(Size());
        for (std::int64_t i = 0; i < case_.elements; ++i) {
          PutNumber(case_.dtype, buffer.data(), i,
                    static_cast<double>((rank * 5 + i * 3) % 17 + (buffers == &second_)));
        }
      }
    }
  }

  Exchange Of(std::int64_t rank) {
    char* first = First(rank).data();
    char* second = Second(rank).data();
    Exchange exchange{case_.kind, case_.reduction, case_.dtype, case_.elements, first, second, case_.root};
    const std::int64_t before = (SizeOf(case_.dtype) * exchange.BeginOf(rank, case_.ranks)).count();
    if (case_.kind == CollectiveKind::all_gather && case_.in_place) {
      exchange.from = second + before;
    } else if (case_.kind == CollectiveKind::broadcast) {
      exchange.from = second;
    } else if (case_.in_place) {
      exchange.to = first + (case_.kind == CollectiveKind::reduce_scatter ? before : 0);
    }
    return exchange;
  }

  /// A rank's two buffers.
  std::vector<char>& First(std::int64_t rank) { return first_[static_cast<std::size_t>(rank)]; }
  std::vector<char>& Second(std::int64_t rank) { return second_[static_cast<std::size_t>(rank)]; }

  friend bool operator==(const ExchangeMemory& a, const ExchangeMemory& b) {
    return a.first_ == b.first_ && a.second_ == b.second_;
  }

 private:
  std::size_t Size() const { return static_cast<std::size_t>((SizeOf(case_.dtype) * case_.elements).count()); }

  ExchangeCase case_;
  std::vector<std::vector<char>> first_, second_;  ///< by rank
};

/// Every kind and type; parts of one length, shorter last ones and empty ones; in place and not.
inline std::vector<ExchangeCase> ExchangeCases() {
  std::vector<ExchangeCase> cases;
  for (const std::int64_t ranks : {1, 2, 3, 4}) {
    for (const std::int64_t elements : {0, 1, 2, 5, 12}) {
      for (const DType dtype :
           {DType::fp64, DType::fp32, DType::bf16, DType::fp16, DType::int64, DType::int32, DType::u8}) {
        for (const bool in_place : {false, true}) {
          for (const Reduction reduction : {Reduction::sum, Reduction::avg, Reduction::max}) {
            cases.push_back({CollectiveKind::all_reduce, reduction, dtype, elements, ranks, in_place});
            cases.push_back({CollectiveKind::reduce_scatter, reduction, dtype, elements, ranks, in_place});
          }
          cases.push_back({CollectiveKind::all_gather, Reduction::none, dtype, elements, ranks, in_place});
        }
        cases.push_back({CollectiveKind::broadcast, Reduction::none, dtype, elements, ranks, true, ranks - 1});
        if (elements % ranks == 0) {
          cases.push_back({CollectiveKind::all_to_all, Reduction::none, dtype, elements, ranks});
        }
      }
    }
  }
  return cases;
}

}  // namespace tidemark
