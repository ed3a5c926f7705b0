// SPDX-License-Identifier: Apache-2.0
#include "sim/engine/ensemble.h"

#include <algorithm>
#include <utility>

#include "base/check.h"

namespace tidemark {

Ensemble::Ensemble(const TimedStep& step) : mail_(step.mailboxes) {
  runners_.reserve(step.roles.size());
  for (const TimedRole& role : step.roles) {
    std::vector<Mailbox*> boxes;
    for (const std::size_t box : role.mailboxes) {
      boxes.push_back(&mail_[box]);
    }
    runners_.emplace_back(role, std::move(boxes));
  }
}

void Ensemble::Settle() {
  // Messages flow both ways, so sweeps alternate in direction.
  for (bool moved = true; moved;) {
    moved = false;
    for (Runner& runner : runners_) {
      moved |= runner.Advance(scratch_);
    }
    for (auto runner = runners_.rbegin(); runner != runners_.rend(); ++runner) {
      moved |= runner->Advance(scratch_);
    }
  }
}

std::int64_t Ensemble::RegularRounds() const {
  std::int64_t rounds = INT64_MAX;
  for (const Runner& runner : runners_) {
    if (runner.state() != Runner::State::finished) {
      rounds = std::min(rounds, runner.state() == Runner::State::boundary ? runner.left() : 0);
    }
  }
  return rounds;
}

void Ensemble::Round() {
  bool released = false;
  for (Runner& runner : runners_) {
    if (runner.state() == Runner::State::boundary) {
      runner.Release();
      released = true;
    }
  }
  TIDEMARK_CHECK(released && "all roles wait for messages that nobody sends");
  Settle();
}

void Ensemble::Rounds() {
  if (const std::int64_t rounds = RegularRounds(); rounds > 0) {
    ForgetChoices();
    const std::uint64_t choices = RunRegime(*this, rounds, scratch_);
    ForgetChoices();
    runners_.front().clock().choices = choices;
  } else {
    Round();
  }
}

bool Ensemble::Finished() const {
  return std::all_of(runners_.begin(), runners_.end(),
                     [](const Runner& runner) { return runner.state() == Runner::State::finished; });
}

StepTime Ensemble::Finish(std::uint64_t& choices) {
  while (!Finished()) {
    ForgetChoices();
    Rounds();
    choices = MixChoices(choices, Choices());
  }
  ForgetChoices();
  std::size_t last = 0;
  for (std::size_t i = 0; i < runners_.size(); ++i) {
    last = runners_[i].clock().End() > runners_[last].clock().End() ? i : last;
  }
  StepTime time = runners_[last].clock().Time();
  time.role = static_cast<std::int64_t>(last);
  choices = MixChoices(MixChoices(choices, last), Choices());
  return time;
}

Ensemble::Place Ensemble::Where() const {
  Place place;
  for (const Runner& runner : runners_) {
    place.roles.push_back(runner.place());
  }
  for (const Mailbox& box : mail_) {
    place.messages.push_back(box.size());
  }
  return place;
}

void Ensemble::Go(const Place& place) {
  for (std::size_t i = 0; i < runners_.size(); ++i) {
    runners_[i].Go(place.roles[i]);
  }
  for (std::size_t i = 0; i < mail_.size(); ++i) {
    mail_[i].resize(place.messages[i]);
  }
}

void Ensemble::Save(std::vector<std::int64_t>& values) {
  values.clear();
  for (const Mailbox& box : mail_) {
    values.insert(values.end(), box.begin(), box.end());
  }
  for (Runner& runner : runners_) {
    values.insert(values.end(), runner.clock().values().begin(),
                  runner.clock().values().begin() + static_cast<std::ptrdiff_t>(runner.clock().moments()));
  }
  moments_ = values.size();
  for (Runner& runner : runners_) {
    values.insert(values.end(), runner.clock().values().end() - kParts, runner.clock().values().end());
  }
}

void Ensemble::Load(const std::vector<std::int64_t>& values) {
  auto at = values.begin();
  TIDEMARK_CHECK(values.size() == Size());
  for (Mailbox& box : mail_) {
    std::copy_n(at, box.size(), box.begin());
    at += static_cast<std::ptrdiff_t>(box.size());
  }
  for (Runner& runner : runners_) {
    std::copy_n(at, runner.clock().moments(), runner.clock().values().begin());
    at += static_cast<std::ptrdiff_t>(runner.clock().moments());
  }
  for (Runner& runner : runners_) {
    std::copy_n(at, kParts, runner.clock().values().end() - kParts);
    at += kParts;
  }
}

std::uint64_t Ensemble::Iterate() {
  ForgetChoices();
  Round();
  return Choices();
}

void Ensemble::Skipped(std::int64_t rounds) {
  for (Runner& runner : runners_) {
    if (runner.state() == Runner::State::boundary) {
      runner.Skip(rounds);
    }
  }
}

std::size_t Ensemble::Size() {
  std::size_t size = 0;
  for (const Mailbox& box : mail_) {
    size += box.size();
  }
  for (Runner& runner : runners_) {
    size += runner.clock().values().size();
  }
  return size;
}

void Ensemble::ForgetChoices() {
  for (Runner& runner : runners_) {
    runner.clock().choices = 0;
  }
}

std::uint64_t Ensemble::Choices() {
  std::uint64_t choices = 0;
  for (Runner& runner : runners_) {
    choices = MixChoices(choices, runner.clock().choices);
    choices = MixChoices(choices, runner.place().at * 4 + static_cast<std::uint64_t>(runner.state()));
  }
  for (const Mailbox& box : mail_) {
    choices = MixChoices(choices, box.size());
  }
  return choices;
}

}  // namespace tidemark
