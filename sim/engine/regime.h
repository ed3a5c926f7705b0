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

/// Runs `count` iterations of `system`; returns a hash of all choices made. A System offers
///   moments()            how many of its values are moments; the rest are sums
///   Save(values), Load(values)
///   Iterate()            one iteration; returns the hash of its choices
///   Skipped(n)           n iterations were leapt over; -1 takes back one that was only tried
template <class System>
std::uint64_t RunRegime(System& system, std::int64_t count, RegimeScratch& scratch) {
  RegimeScratch::Frame& f = *scratch.Take();
  const auto combine = [](std::uint64_t hash, std::uint64_t next) { return (hash ^ next) * 0x9e3779b97f4a7c15ULL; };
  std::uint64_t all = 1;
  std::uint64_t last_choices = 0;
  f.last_step.clear();
  system.Save(f.after);
  while (count > 0) {
    f.before.swap(f.after);
    const std::uint64_t choices = system.Iterate();
    --count;
    all = combine(all, choices);
    system.Save(f.after);
    const std::size_t moments = system.moments();
    const bool comparable = f.before.size() == f.after.size();
    f.step.clear();
    for (std::size_t i = 0; comparable && i < f.after.size(); ++i) {
      f.step.push_back(f.after[i] - f.before[i]);
    }
    bool steady = comparable && choices == last_choices && f.last_step.size() == f.step.size();
    for (std::size_t i = 0; steady && i < moments; ++i) {
      steady = f.step[i] == f.last_step[i];
    }
    last_choices = choices;
    f.last_step = f.step;
    for (std::int64_t leap = steady ? count - 1 : 0; leap > 0; leap /= 2) {
      f.ahead = f.after;
      for (std::size_t i = 0; i < moments; ++i) {
        f.ahead[i] += leap * f.step[i];
      }
      system.Load(f.ahead);
      const std::uint64_t choices_ahead = system.Iterate();
      f.before.swap(f.ahead);
      system.Save(f.ahead);
      bool same = choices_ahead == choices && f.ahead.size() == f.before.size();
      for (std::size_t i = 0; same && i < moments; ++i) {
        same = f.ahead[i] - f.before[i] == f.step[i];
      }
      if (!same) {
        system.Load(f.after);
        system.Skipped(-1);
        continue;
      }
      for (std::size_t i = moments; i < f.ahead.size(); ++i) {
        const std::int64_t grown = f.ahead[i] - f.before[i];
        f.ahead[i] += leap * (f.step[i] + grown) / 2;
        f.last_step[i] = grown;
      }
      system.Load(f.ahead);
      system.Skipped(leap);
      f.after.swap(f.ahead);
      count -= leap + 1;
      all = combine(combine(all, static_cast<std::uint64_t>(leap)), choices_ahead);
      break;
    }
  }
  scratch.Give(&f);
  return all;
}

}  // namespace tidemark
