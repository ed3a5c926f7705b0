// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <algorithm>
#include <cstdint>
#include <map>
#include <optional>
#include <tuple>
#include <utility>
#include <vector>

// PyTorch's caching allocator once more, as plainly as possible and sharing nothing with sim/memory: every question is
// answered by a walk over everything. The property tests play random requests into this and into the real one.

namespace tidemark::naive {

inline constexpr std::int64_t kKiB = 1024, kMiB = 1024 * kKiB;

struct Grant {
  int tensor = 0;
  std::int64_t charged = 0;
};

inline std::int64_t CeilTo(std::int64_t value, std::int64_t step) {
  return value % step == 0 ? value : value - value % step + step;
}

/// 0 where it is not set.
struct Knobs {
  std::int64_t max_split = 0, rounding = 20 * kMiB, large_segment = 20 * kMiB, divisions = 0;
  double fraction = 0, collect_above = 0;
};

/// Rounds to 512, or where there are divisions to the first of the steps between powers of two that is large enough.
inline std::int64_t RoundedTo(std::int64_t request, std::int64_t divisions) {
  if (divisions <= 1 || request <= 512 * divisions) {
    return CeilTo(request, 512);
  }
  std::int64_t power = 1;
  while (2 * power <= request) {
    power *= 2;
  }
  std::int64_t step = power;
  while (step < request) {
    step += power / divisions;
  }
  return step;
}

/// Fixed segments: a list of segments, each a list of pieces.
class Caching {
 public:
  explicit Caching(std::int64_t capacity, Knobs knobs = {}) : capacity_(capacity), knobs_(knobs) {}

  std::optional<Grant> Allocate(std::int64_t request, int stream) {
    const std::int64_t need = RoundedTo(request, knobs_.divisions);
    const bool small = need <= kMiB;
    now_ += small ? 0 : 1;
    Place place = BestFit(need, stream, small);
    if (!place.segment) {
      Collect();
      if (!AddSegment(need, stream, small) &&
          (small || !GiveOversize(need, stream) || !AddSegment(need, stream, small))) {
        ++flushes;
        std::erase_if(segments_, IsCached);
        if (!AddSegment(need, stream, small)) {
          return std::nullopt;
        }
      }
      place = {&segments_.front(), 0};
    }
    std::vector<Piece>& pieces = place.segment->pieces;
    const std::int64_t rest = pieces[place.piece].size - need;
    pieces[place.piece].tensor = ++last_tensor_;
    const bool may_split = small || knobs_.max_split == 0 || need < knobs_.max_split;
    if (small ? rest >= 512 : may_split && rest > kMiB) {
      pieces[place.piece].size = need;
      pieces.insert(pieces.begin() + static_cast<std::ptrdiff_t>(place.piece) + 1, Piece{rest, 0, now_});
    }
    return Grant{last_tensor_, pieces[place.piece].size};
  }

  void Free(int tensor) {
    for (Segment& segment : segments_) {
      std::vector<Piece> merged;
      for (Piece piece : segment.pieces) {
        if (piece.tensor == tensor) {
          piece.tensor = 0;
          piece.since = now_;
        }
        if (piece.tensor == 0 && !merged.empty() && merged.back().tensor == 0) {
          merged.back().size += piece.size;
          merged.back().since = now_;
        } else {
          merged.push_back(piece);
        }
      }
      segment.pieces = merged;
    }
  }

  std::int64_t reserved() const {
    std::int64_t sum = 0;
    for (const Segment& segment : segments_) {
      for (const Piece& piece : segment.pieces) {
        sum += piece.size;
      }
    }
    return sum;
  }

  std::int64_t flushes = 0;

 private:
  struct Piece {
    std::int64_t size;
    int tensor;  // 0: free
    std::int64_t since = 0;
  };
  struct Segment {
    int stream;
    bool small;
    std::vector<Piece> pieces;
  };
  struct Place {
    Segment* segment = nullptr;
    std::size_t piece = 0;
  };

  static bool IsCached(const Segment& segment) { return segment.pieces.size() == 1 && segment.pieces[0].tensor == 0; }

  std::int64_t Allowed() const { return static_cast<std::int64_t>(knobs_.fraction * static_cast<double>(capacity_)); }

  /// Gives back large segments that have been cached for the mean number of searches, until enough went.
  void Collect() {
    if (knobs_.fraction == 0 || knobs_.collect_above == 0) {
      return;
    }
    const std::int64_t above = static_cast<std::int64_t>(knobs_.collect_above * static_cast<double>(Allowed()));
    for (std::size_t before = 0; reserved() > above && before != segments_.size();) {
      before = segments_.size();
      double ages = 0, count = 0;
      for (const Segment& segment : segments_) {
        if (!segment.small && IsCached(segment)) {
          ages += static_cast<double>(now_ - segment.pieces[0].since);
          ++count;
        }
      }
      std::erase_if(segments_, [&](const Segment& segment) {
        return !segment.small && IsCached(segment) &&
               static_cast<double>(now_ - segment.pieces[0].since) >= ages / count;
      });
    }
  }

  /// Gives back the smallest cached segment that is large enough, or the largest ones until they are.
  bool GiveOversize(std::int64_t need, int stream) {
    if (knobs_.max_split == 0) {
      return false;
    }
    const std::int64_t enough = std::max(need, knobs_.max_split);
    std::vector<std::size_t> oversize;
    for (std::size_t i = 0; i < segments_.size(); ++i) {
      if (segments_[i].stream == stream && !segments_[i].small && IsCached(segments_[i]) &&
          segments_[i].pieces[0].size >= knobs_.max_split) {
        oversize.push_back(i);
      }
    }
    const auto size = [&](std::size_t i) { return segments_[i].pieces[0].size; };
    std::stable_sort(oversize.begin(), oversize.end(), [&](std::size_t a, std::size_t b) { return size(a) < size(b); });
    std::vector<std::size_t> go;
    const auto fits = std::find_if(oversize.begin(), oversize.end(), [&](std::size_t i) { return size(i) >= enough; });
    std::int64_t sum = 0;
    if (fits != oversize.end()) {
      go.push_back(*fits);
      sum = size(*fits);
    }
    for (std::size_t i = fits == oversize.end() ? oversize.size() : 0; sum < enough && i > 0; --i) {
      go.push_back(oversize[i - 1]);
      sum += size(oversize[i - 1]);
    }
    std::sort(go.rbegin(), go.rend());
    for (const std::size_t i : go) {
      segments_.erase(segments_.begin() + static_cast<std::ptrdiff_t>(i));
    }
    return sum >= enough;
  }

  /// Segments stand in order of address, pieces too: the first of the smallest is the lowest. With max_split that one
  /// may be rejected, and then there is none.
  Place BestFit(std::int64_t need, int stream, bool small) {
    Place best;
    for (Segment& segment : segments_) {
      for (std::size_t i = 0; i < segment.pieces.size(); ++i) {
        const Piece& piece = segment.pieces[i];
        if (segment.stream == stream && segment.small == small && piece.tensor == 0 && piece.size >= need &&
            (!best.segment || piece.size < best.segment->pieces[best.piece].size)) {
          best = {&segment, i};
        }
      }
    }
    if (best.segment && knobs_.max_split > 0) {
      const std::int64_t size = best.segment->pieces[best.piece].size;
      const bool rejected = need < knobs_.max_split ? size >= knobs_.max_split : size >= need + knobs_.rounding;
      return rejected ? Place() : best;
    }
    return best;
  }

  bool AddSegment(std::int64_t need, int stream, bool small) {
    const std::int64_t size = small ? 2 * kMiB : need < 10 * kMiB ? knobs_.large_segment : CeilTo(need, 2 * kMiB);
    if (reserved() + size > capacity_ || (knobs_.fraction > 0 && reserved() + size > Allowed())) {
      return false;
    }
    segments_.insert(segments_.begin(), {stream, small, {{size, 0}}});  // below those that there are
    return true;
  }

  std::int64_t capacity_;
  Knobs knobs_;
  int last_tensor_ = 0;
  std::int64_t now_ = 0;  // searches for large pieces
  std::vector<Segment> segments_;
};

/// Expandable segments: per (stream, small) one endless line of addresses, cut into cells of 512 bytes.
class Expandable {
 public:
  explicit Expandable(std::int64_t capacity, Knobs knobs = {}) : capacity_(capacity), knobs_(knobs) {}

  std::optional<Grant> Allocate(std::int64_t request, int stream) {
    const std::int64_t need = RoundedTo(request, knobs_.divisions) / 512;
    Line& line = lines_[{stream, need <= kMiB / 512}];
    line.page = (need <= kMiB / 512 ? 2 * kMiB : knobs_.large_segment) / 512;
    std::optional<std::int64_t> at = line.Find(need);
    if (!at) {
      at = Grow(line, need);
    }
    if (!at) {
      ++flushes;
      for (auto& [key, other] : lines_) {
        other.UnmapFreePages();
      }
      at = Grow(line, need);
    }
    if (!at) {
      return std::nullopt;
    }
    line.live[++last_tensor_] = {*at, *at + need};
    return Grant{last_tensor_, need * 512};
  }

  void Free(int tensor) {
    for (auto& [key, line] : lines_) {
      line.live.erase(tensor);
    }
  }

  std::int64_t reserved() const {
    std::int64_t sum = 0;
    for (const auto& [key, line] : lines_) {
      sum += std::count(line.mapped.begin(), line.mapped.end(), true) * line.page * 512;
    }
    return sum;
  }

  std::int64_t flushes = 0;

 private:
  static constexpr std::int64_t kEndless = std::int64_t{1} << 60;
  enum class Use { live, free, unmapped };
  struct Stretch {
    std::int64_t begin, end;
    Use use;
  };
  struct Line {
    std::int64_t page = 1;                                      // in cells
    std::vector<bool> mapped;                                   // by page
    std::map<int, std::pair<std::int64_t, std::int64_t>> live;  // tensor -> cells

    /// The line as maximal stretches of one use (live tensors one by one), the last one unmapped without end.
    std::vector<Stretch> Stretches() const {
      std::vector<std::int64_t> borders{0};
      for (std::size_t i = 0; i <= mapped.size(); ++i) {
        borders.push_back(static_cast<std::int64_t>(i) * page);
      }
      for (const auto& [tensor, cells] : live) {
        borders.push_back(cells.first);
        borders.push_back(cells.second);
      }
      std::sort(borders.begin(), borders.end());
      borders.erase(std::unique(borders.begin(), borders.end()), borders.end());
      borders.push_back(kEndless);
      std::vector<Stretch> result;
      for (std::size_t i = 0; i + 1 < borders.size(); ++i) {
        const std::size_t at_page = static_cast<std::size_t>(borders[i] / page);
        Use use = at_page < mapped.size() && mapped[at_page] ? Use::free : Use::unmapped;
        for (const auto& [tensor, cells] : live) {
          use = cells.first <= borders[i] && borders[i] < cells.second ? Use::live : use;
        }
        if (!result.empty() && result.back().use == use && use != Use::live) {
          result.back().end = borders[i + 1];
        } else {
          result.push_back({borders[i], borders[i + 1], use});
        }
      }
      return result;
    }

    /// Best fit; then on while the next larger one with the unmapped room behind it is smaller than this one with its.
    std::optional<std::int64_t> Find(std::int64_t need) const {
      std::vector<std::tuple<std::int64_t, std::int64_t, std::int64_t>> fits;  // size, begin, size with room
      const std::vector<Stretch> all = Stretches();
      for (std::size_t i = 0; i < all.size(); ++i) {
        if (const std::int64_t size = all[i].end - all[i].begin; all[i].use == Use::free && size >= need) {
          const bool room = i + 1 < all.size() && all[i + 1].use == Use::unmapped;
          fits.emplace_back(size, all[i].begin, size + (room ? all[i + 1].end - all[i + 1].begin : 0));
        }
      }
      std::sort(fits.begin(), fits.end());
      for (std::size_t i = 0; i < fits.size(); ++i) {
        if (i + 1 == fits.size() || std::get<2>(fits[i + 1]) >= std::get<2>(fits[i])) {
          return std::get<1>(fits[i]);
        }
      }
      return std::nullopt;
    }

    void UnmapFreePages() {
      for (const Stretch& stretch : Stretches()) {
        for (std::int64_t i = CeilTo(stretch.begin, page); stretch.use == Use::free && i + page <= stretch.end;
             i += page) {
          mapped[static_cast<std::size_t>(i / page)] = false;
        }
      }
    }
  };

  /// Maps what is missing under the lowest place where `need` cells fit, stretch by stretch, each all or nothing.
  std::optional<std::int64_t> Grow(Line& line, std::int64_t need) {
    const std::int64_t segment = need * 512 <= kMiB       ? 2 * kMiB
                                 : need * 512 < 10 * kMiB ? knobs_.large_segment
                                                          : CeilTo(need * 512, 2 * kMiB);
    const double allowed = knobs_.fraction * static_cast<double>(capacity_);
    if (knobs_.fraction > 0 && reserved() + segment > static_cast<std::int64_t>(allowed)) {
      return std::nullopt;  // asked with a segment's size, though pages are what is mapped
    }
    const std::vector<Stretch> all = line.Stretches();
    for (std::size_t i = 0; i < all.size(); ++i) {
      std::size_t end = i;
      while (end < all.size() && all[end].use != Use::live && all[end].begin - all[i].begin < need) {
        ++end;
      }
      const bool has_unmapped = all[i].use == Use::unmapped || (i + 1 < end && all[i + 1].use == Use::unmapped);
      if (end == i || !has_unmapped || all[end - 1].end - all[i].begin < need) {
        continue;
      }
      for (std::size_t j = i; j < end; ++j) {
        const std::int64_t to = std::min(all[j].end, CeilTo(all[i].begin + need, line.page));
        if (all[j].use == Use::unmapped && !Map(line, all[j].begin / line.page, to / line.page)) {
          return std::nullopt;
        }
      }
      return all[i].begin;
    }
    return std::nullopt;
  }

  bool Map(Line& line, std::int64_t begin, std::int64_t end) {
    if (reserved() + (end - begin) * line.page * 512 > capacity_) {
      return false;
    }
    line.mapped.resize(std::max(line.mapped.size(), static_cast<std::size_t>(end)));
    std::fill(line.mapped.begin() + begin, line.mapped.begin() + end, true);
    return true;
  }

  std::int64_t capacity_;
  Knobs knobs_;
  int last_tensor_ = 0;
  std::map<std::pair<int, bool>, Line> lines_;
};

}  // namespace tidemark::naive
