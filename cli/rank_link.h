// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <sys/types.h>

#include <cstddef>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <utility>

#include "base/result.h"
#include "profiler/execute/progress.h"

namespace tidemark {

// The link between `tidemark run` and the ranks that it has started on this machine through mpirun: a local socket.
// Over it a rank is given its supervisor's own stdout and stderr, so that what it writes is seen, coloured and refused
// as if nobody stood between them, and memory that both map, in which it says what it is doing. The socket stays open
// for as long as the rank lives. The training itself goes its own way, through MPI.

/// A file descriptor, closed by its owner.
class Descriptor {
 public:
  Descriptor() = default;
  explicit Descriptor(int number) : number_(number) {}
  Descriptor(Descriptor&& other) noexcept : number_(std::exchange(other.number_, -1)) {}
  Descriptor& operator=(Descriptor&& other) noexcept {
    std::swap(number_, other.number_);
    return *this;
  }
  Descriptor(const Descriptor&) = delete;
  Descriptor& operator=(const Descriptor&) = delete;
  ~Descriptor();

  int get() const { return number_; }
  bool open() const { return number_ >= 0; }
  void Close() { *this = Descriptor(); }

 private:
  int number_ = -1;
};

/// Memory that two processes can map; it holds one RankProgress for each rank.
class SharedProgress {
 public:
  SharedProgress() = default;
  static Result<SharedProgress> Make(std::size_t ranks);
  /// What another process has made; nothing where it is too small.
  static std::optional<SharedProgress> Map(Descriptor memory, std::size_t ranks);

  RankProgress& operator[](std::size_t rank) const { return ranks_.get()[rank]; }
  int descriptor() const { return memory_.get(); }

 private:
  struct Unmap {
    Unmap() : ranks(0) {}
    explicit Unmap(std::size_t count) : ranks(count) {}
    std::size_t ranks;
    void operator()(RankProgress* mapped) const;
  };
  SharedProgress(Descriptor memory, RankProgress* mapped, std::size_t ranks)
      : memory_(std::move(memory)), ranks_(mapped, Unmap{ranks}) {}

  Descriptor memory_;
  std::unique_ptr<RankProgress, Unmap> ranks_;
};

/// The supervisor's end.
class RankServer {
 public:
  static Result<RankServer> Open();

  struct Arrival {
    Descriptor socket;
    pid_t pid = 0;
    std::size_t rank = 0;
  };
  /// A rank that has come and been given what it needs; nothing where it was none of this user's, or has gone again.
  std::optional<Arrival> Accept(const SharedProgress& progress) const;

  int descriptor() const { return socket_.get(); }
  /// To be set in the environment of the ranks: "NAME=value".
  const std::string& variable() const { return variable_; }

 private:
  RankServer(Descriptor socket, std::string variable) : socket_(std::move(socket)), variable_(std::move(variable)) {}

  Descriptor socket_;
  std::string variable_;
};

/// A rank's end.
class RankLink {
 public:
  /// Finds the supervisor by the environment and takes over what it gives. Where there is none, or it is out of reach,
  /// the rank writes where it wrote before, and its progress is its own.
  static RankLink Attach(std::size_t rank, std::size_t ranks);

  RankProgress& progress() const { return *progress_; }

 private:
  Descriptor socket_;
  SharedProgress shared_;
  std::unique_ptr<RankProgress> own_;
  RankProgress* progress_ = nullptr;
};

}  // namespace tidemark
