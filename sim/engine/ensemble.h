// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "sim/engine/evaluation.h"
#include "sim/engine/regime.h"
#include "sim/engine/runner.h"
#include "sim/engine/time_program.h"

namespace tidemark {

// The roles of a step together
// ----------------------------
// The joint clock is the list of all moments of all roles and of the messages under way. Joint loops are stepped
// together: a round lets each role run one iteration of its own loop, and rounds repeat as iterations do. Which
// messages a role finds does not depend on times, only on the order of its own and its peers' nodes: a receive waits
// until its message exists. Rounds in which some role is not at the start of an iteration are simply run.

/// As a system of RunRegime, one iteration is a round. The step must outlive it.
class Ensemble {
 public:
  explicit Ensemble(const TimedStep& step);
  Ensemble(const Ensemble&) = delete;
  Ensemble& operator=(const Ensemble&) = delete;

  /// Runs to the next point at which no role can go on by itself. From there on, one of the next three.
  void Settle();
  /// How many rounds only repeat bodies: every role that is not finished stands before an iteration.
  std::int64_t RegularRounds() const;
  void Round();
  /// A round, or as many as only repeat bodies.
  void Rounds();

  bool Finished() const;
  /// From where it stands to the end. Mixes every choice on the way into `choices`.
  StepTime Finish(std::uint64_t& choices);

  std::vector<Runner>& runners() { return runners_; }

  /// What a place is made of besides values: where each role stands, and how many messages are under way.
  struct Place {
    std::vector<Runner::Place> roles;
    std::vector<std::size_t> messages;
  };
  Place Where() const;
  /// Values are loaded by themselves.
  void Go(const Place& place);

  std::size_t moments() const { return moments_; }
  void Save(std::vector<std::int64_t>& values);
  void Load(const std::vector<std::int64_t>& values);
  std::uint64_t Iterate();
  void Skipped(std::int64_t rounds);

 private:
  std::size_t Size();
  void ForgetChoices();
  std::uint64_t Choices();

  std::vector<Mailbox> mail_;
  std::vector<Runner> runners_;
  RegimeScratch scratch_;
  std::size_t moments_ = 0;
};

}  // namespace tidemark
