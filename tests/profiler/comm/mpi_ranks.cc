// SPDX-License-Identifier: Apache-2.0
// Under mpirun: whether MPI's exchanges are those that other communicators are compared with, and whether what is
// staged over MPI, from "device memory" at other addresses, is the same.
#include <fmt/format.h>

#include <cstdint>
#include <cstdio>
#include <cstring>
#include <string>
#include <vector>

#include "profiler/comm/communicator.h"
#include "profiler/comm/staged.h"
#include "tests/profiler/comm/looped_ranks.h"

namespace tidemark {
namespace {

constexpr std::uintptr_t kDisguise = std::uintptr_t{1} << 63;

template <class T>
T* Disguised(T* pointer) {
  return reinterpret_cast<T*>(reinterpret_cast<std::uintptr_t>(pointer) ^ kDisguise);
}

DeviceCopies Copies() {
  return {[](const void* device, void* host, Bytes bytes, void*) -> Status {
            std::memcpy(host, Disguised(device), static_cast<std::size_t>(bytes.count()));
            return Done{};
          },
          [](const void* host, void* device, Bytes bytes, void*) -> Status {
            std::memcpy(Disguised(device), host, static_cast<std::size_t>(bytes.count()));
            return Done{};
          }};
}

/// How many of the cases for so many ranks go wrong.
int WrongExchanges(Communicator& group, bool staged) {
  int wrong = 0;
  for (const ExchangeCase& one : ExchangeCases()) {
    if (one.ranks != group.size()) {
      continue;
    }
    ExchangeMemory expected(one), memory(one);
    std::vector<Exchange> exchanges;
    for (std::int64_t rank = 0; rank < one.ranks; ++rank) {
      exchanges.push_back(expected.Of(rank));
    }
    DoExchange(exchanges);
    Exchange exchange = memory.Of(group.rank());
    if (staged) {
      exchange.from = Disguised(exchange.from);
      exchange.to = Disguised(exchange.to);
    }
    const auto ticket = group.Begin(exchange);
    const bool done = ticket.ok() && group.Finish(*ticket).ok();
    if (!done || memory.First(group.rank()) != expected.First(group.rank()) ||
        memory.Second(group.rank()) != expected.Second(group.rank())) {
      fmt::print(stderr, "{}{}: wrong on rank {}\n", staged ? "staged " : "", one.Text(), group.rank());
      ++wrong;
    }
  }
  return wrong;
}

int Run() {
  const auto world = OpenMpiWorld();
  if (!world.ok()) {
    fmt::print(stderr, "{}\n", world.error().Text());
    return 1;
  }
  const auto plain = *(*world)->Split(0);
  const auto staged = MakeStagedCommunicator(*(*world)->Split(0), Copies());
  const double wrong = (*world)->Sum(WrongExchanges(*plain, false) + WrongExchanges(*staged, true));
  return wrong == 0 && plain->size() > 1 ? 0 : 1;
}

}  // namespace
}  // namespace tidemark

int main() { return tidemark::Run(); }
