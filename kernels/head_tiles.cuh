// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "kernels/heads.h"
#include "kernels/tile.cuh"

namespace tidemark::kernels::cuda {

/// Rows of heads in a tensor, to be copied into tiles of T.
template <class T>
class HeadTiles {
 public:
  using C = SumOfTile<T>;

  HeadTiles(const ConstTensor& tensor, const HeadRows& rows, std::int64_t head_size)
      : data_(static_cast<const T*>(tensor.data)), elements_(tensor), rows_(rows), head_size_(head_size) {
    const bool is_same = tensor.type.dtype == kTileDType<T>;
    TIDEMARK_CHECK(is_same || !kIsNarrow<T>);
    in_words_ =
        is_same && head_size % kPerWord<T> == 0 && reinterpret_cast<std::uintptr_t>(tensor.data) % sizeof(Word) == 0;
  }

  /// Elements [first, first + kWidth) of a head of `count` tokens from `token` on; zeros beyond these and the head.
  template <int kWidth>
  __host__ __device__ void Load(const TileTeam& team, std::int64_t token, std::int64_t count, std::int64_t head,
                                std::int64_t first, Tile<T, kWidth>& tile) const {
    const std::int64_t begin = token * rows_.stride + rows_.first + head * head_size_ + first;
    const std::int64_t width = head_size_ - first;
    if (in_words_) {
      constexpr int kWords = kWidth / kPerWord<T>;
      team.Each(kSide * kWords, [&](int i) {
        const int row = i / kWords, column = i % kWords * kPerWord<T>;
        const bool is_there = row < count && column < width;
        CopyWord(is_there, data_ + begin + row * rows_.stride + column, &tile.At(row, column));
      });
    } else {
      team.Each(kSide * kWidth, [&](int i) {
        const int row = i / kWidth, column = i % kWidth;
        const bool is_there = row < count && column < width;
        tile.At(row, column) = is_there ? At(begin + row * rows_.stride + column) : T{};
      });
    }
  }

 private:
  __host__ __device__ T At(std::int64_t i) const {
    if constexpr (kIsNarrow<T>) {
      return data_[i];
    } else {
      return elements_[i];
    }
  }

  const T* data_;
  Input<C> elements_;
  HeadRows rows_;
  std::int64_t head_size_;
  bool in_words_ = false;
};

}  // namespace tidemark::kernels::cuda
