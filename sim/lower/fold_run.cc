// SPDX-License-Identifier: Apache-2.0
#include "sim/lower/fold_run.h"

#include <algorithm>
#include <optional>
#include <utility>
#include <vector>

namespace tidemark {
namespace {

/// A block that has been written: the state before it, and where its nodes start.
struct Written {
  std::vector<std::int64_t> key;
  std::size_t start;
  std::int64_t position;
};

class RunFolder {
 public:
  RunFolder(Role& role, DataParallel& data_parallel, const BlockWriter& blocks, const BlockWalk& walk)
      : role_(role), data_parallel_(data_parallel), blocks_(blocks), walk_(walk) {}

  void Run(const std::function<void(std::int64_t)>& write) {
    for (std::int64_t done = 0; done < walk_.count;) {
      const std::int64_t position = walk_.position + done * walk_.step;
      role_.StandAt(position);
      written_.push_back({next_key_ ? *std::exchange(next_key_, {}) : KeyAt(position), role_.builder.size(), position});
      write(position);
      ++done;
      if (walk_.count - done > 1) {
        done += FoldPeriod(walk_.count - 1 - done);
      }
    }
    BindWritten(written_.size());
    role_.LeaveBlocks();
  }

 private:
  std::vector<std::int64_t> KeyAt(std::int64_t position) const {
    std::vector<std::int64_t> key = data_parallel_.Key(position);
    const std::vector<std::int64_t> own = blocks_.Key(position);
    key.insert(key.end(), own.begin(), own.end());
    return key;
  }

  /// If the state before the next block was met before, folds the blocks since then; returns how many blocks the loop
  /// covers beyond those written, at most `left`.
  std::int64_t FoldPeriod(std::int64_t left) {
    const std::int64_t next = written_.back().position + walk_.step;
    next_key_ = KeyAt(next);
    std::size_t begin = written_.size();
    while (begin > 0 && written_[begin - 1].key != *next_key_) {
      --begin;
    }
    if (begin == 0) {
      return 0;
    }
    --begin;
    const auto period = static_cast<std::int64_t>(written_.size() - begin);
    const std::int64_t more = std::min(left, data_parallel_.BlocksAlike(next)) / period * period;
    if (more == 0) {
      return 0;
    }
    for (std::size_t i = begin; i < written_.size(); ++i) {
      role_.builder.Shift(written_[i].start, EndOf(i), role_.block_loop,
                          written_[i].position - written_[begin].position);
    }
    const std::size_t start = written_[begin].start;
    const std::int64_t from = role_.InRun(written_[begin].position);
    BindWritten(begin);
    role_.builder.Fold(start, {role_.block_loop, more / period + 1, from, walk_.step * period, 0});
    data_parallel_.Shift(more * walk_.step);
    written_.clear();
    next_key_.reset();
    return more;
  }

  std::size_t EndOf(std::size_t i) const {
    return i + 1 < written_.size() ? written_[i + 1].start : role_.builder.size();
  }

  /// Makes the first `count` blocks, written by themselves, refer to their own position.
  void BindWritten(std::size_t count) {
    for (std::size_t i = 0; i < count; ++i) {
      role_.builder.Bind(written_[i].start, EndOf(i), role_.block_loop, role_.InRun(written_[i].position));
    }
  }

  Role& role_;
  DataParallel& data_parallel_;
  const BlockWriter& blocks_;
  BlockWalk walk_;
  std::vector<Written> written_;
  std::optional<std::vector<std::int64_t>> next_key_;  ///< before the next block, where it has been asked for
};

}  // namespace

void FoldRun(Role& role, DataParallel& data_parallel, const BlockWriter& blocks, const BlockWalk& walk,
             const std::function<void(std::int64_t)>& write) {
  RunFolder(role, data_parallel, blocks, walk).Run(write);
}

}  // namespace tidemark
