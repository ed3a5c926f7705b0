// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <deque>
#include <vector>

#include "base/check.h"

namespace tidemark {

// Leaping over iterations, exactly
// --------------------------------
// A system has a state x of moments and sums. One iteration F replaces moments by the latest of others plus constants,
// and adds differences of moments to sums. Which moment is the latest is a choice; a choice is a comparison of two
// expressions affine in x.
//
// Let an iteration from x make the choices s and move the moments by d. Let an iteration from x + (k+1) d make the same
// choices s and move them by d as well. Along the line x + j d, 0 <= j <= k+1, each compared difference is affine in j
// and has the same sign at both ends, hence everywhere between: all iterations on the line make the choices s. With
// fixed choices F is affine, and F(x + j d) = x + (j+1) d holds at both ends, hence everywhere: the line *is* the
// trajectory. Each sum grows by an amount affine in j, so the skipped part is an arithmetic series, and integer.
//
// Loops inside an iteration are choices too (how far they leaped, and the choices of the iterations they ran): their
// compared differences are affine in j at each of the iterations that were run, and affine in the inner iteration
// between those, so the same argument holds for both indices at once.
//
// Where no such leap exists the iterations are run one by one; the result is exact in every case.

/// Reused memory of nested RunRegime calls.
struct RegimeScratch {
  struct Frame {
    std::vector<std::int64_t> before, after, ahead, step, last_step;
  };
  std::vector<Frame*> free;
  std::deque<Frame> owned;  ///< a deque: frames in use keep their place

  Frame* Take() {
    if (free.empty()) {
      return &owned.emplace_back();
    }
    Frame* frame = free.back();
    free.pop_back();
    return frame;
  }
  void Give(Frame* frame) { free.push_back(frame); }
};

/// Mixes two hashes of choices; order counts.
constexpr std::uint64_t MixChoices(std::uint64_t hash, std::uint64_t next) {
  return (hash ^ next) * 0x9e3779b97f4a7c15ULL;
}

/// One loop of one System. See RunRegime.
template <class System>
class Regime {
 public:
  Regime(System& system, std::int64_t count, RegimeScratch& scratch)
      : system_(system), left_(count), scratch_(scratch), f_(*scratch.Take()) {
    f_.last_step.clear();
    system_.Save(f_.after);
  }
  ~Regime() { scratch_.Give(&f_); }
  Regime(const Regime&) = delete;
  Regime& operator=(const Regime&) = delete;

  std::uint64_t Run() {
    while (left_ > 0) {
      const bool steady = RunOne();
      for (std::int64_t leap = steady ? left_ - 1 : 0; leap > 0; leap /= 2) {
        if (Leap(leap)) {
          break;
        }
      }
    }
    return all_;
  }

 private:
  /// One iteration. True when it chose and moved as the one before did, so that a leap is worth a try.
  bool RunOne() {
    f_.before.swap(f_.after);
    const std::uint64_t choices = system_.Iterate();
    --left_;
    all_ = MixChoices(all_, choices);
    system_.Save(f_.after);
    moments_ = system_.moments();
    const bool comparable = f_.before.size() == f_.after.size();
    f_.step.clear();
    for (std::size_t i = 0; comparable && i < f_.after.size(); ++i) {
      f_.step.push_back(f_.after[i] - f_.before[i]);
    }
    bool steady = comparable && choices == choices_ && f_.last_step.size() == f_.step.size();
    for (std::size_t i = 0; steady && i < moments_; ++i) {
      steady = f_.step[i] == f_.last_step[i];
    }
    choices_ = choices;
    f_.last_step = f_.step;
    return steady;
  }

  /// Tries the iteration behind `leap` skipped ones. Where it chooses and moves as the last one did, the skipped ones
  /// are done; else all is as before.
  bool Leap(std::int64_t leap) {
    f_.ahead = f_.after;
    for (std::size_t i = 0; i < moments_; ++i) {
      f_.ahead[i] += leap * f_.step[i];
    }
    system_.Load(f_.ahead);
    const std::uint64_t choices = system_.Iterate();
    f_.before.swap(f_.ahead);
    system_.Save(f_.ahead);
    bool same = choices == choices_ && f_.ahead.size() == f_.before.size();
    for (std::size_t i = 0; same && i < moments_; ++i) {
      same = f_.ahead[i] - f_.before[i] == f_.step[i];
    }
    if (!same) {
      system_.Load(f_.after);
      system_.Skipped(-1);
      return false;
    }
    for (std::size_t i = moments_; i < f_.ahead.size(); ++i) {
      const std::int64_t grown = f_.ahead[i] - f_.before[i];
      f_.ahead[i] += leap * (f_.step[i] + grown) / 2;  // an arithmetic series, its first term done already
      f_.last_step[i] = grown;
    }
    system_.Load(f_.ahead);
    system_.Skipped(leap);
    f_.after.swap(f_.ahead);
    left_ -= leap + 1;
    all_ = MixChoices(MixChoices(all_, static_cast<std::uint64_t>(leap)), choices);
    return true;
  }

  System& system_;
  std::int64_t left_;
  RegimeScratch& scratch_;
  RegimeScratch::Frame& f_;
  std::size_t moments_ = 0;
  std::uint64_t all_ = 1, choices_ = 0;
};

/// Runs `count` iterations of `system`; returns a hash of all choices made. A System offers
///   moments()            how many of its values are moments; the rest are sums
///   Save(values), Load(values)
///   Iterate()            one iteration; returns the hash of its choices
///   Skipped(n)           n iterations were leapt over; -1 takes back one that was only tried
template <class System>
std::uint64_t RunRegime(System& system, std::int64_t count, RegimeScratch& scratch) {
  return Regime<System>(system, count, scratch).Run();
}

}  // namespace tidemark
