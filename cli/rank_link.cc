// SPDX-License-Identifier: Apache-2.0
#include "cli/rank_link.h"

#include <fmt/format.h>
#include <sys/mman.h>
#include <sys/random.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/time.h>
#include <sys/un.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <csignal>
#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <new>

namespace tidemark {
namespace {

constexpr const char* kVariable = "TIDEMARK_SUPERVISOR";
constexpr std::size_t kHandedOver = 3;  ///< descriptors: stdout, stderr, the progress of all ranks
using Handed = std::array<int, kHandedOver>;

Error CannotSupervise(const char* what) {
  return {ErrorCode::machine_cannot, "", fmt::format("ranks cannot be supervised: {}: {}", what, std::strerror(errno)),
          "start them with a launcher of your own: mpirun -np N tidemark run JOB"};
}

/// An address without a file (Linux, unix(7): abstract): nothing stays behind. Anybody on the machine may connect to
/// it; PeerIsOurs tells who does.
sockaddr_un AddressOf(const std::string& name, socklen_t& length) {
  sockaddr_un address{};
  address.sun_family = AF_UNIX;
  const std::size_t count = std::min(name.size(), sizeof address.sun_path - 1);
  std::memcpy(address.sun_path + 1, name.data(), count);
  length = static_cast<socklen_t>(offsetof(sockaddr_un, sun_path) + 1 + count);
  return address;
}

/// The process at the other end where it is this user's.
std::optional<pid_t> PeerIsOurs(int socket) {
  ucred peer{};
  socklen_t length = sizeof peer;
  const bool known = getsockopt(socket, SOL_SOCKET, SO_PEERCRED, &peer, &length) == 0;
  return known && peer.uid == geteuid() ? std::optional(peer.pid) : std::nullopt;
}

/// One message of one byte, and descriptors beside it (unix(7): SCM_RIGHTS).
struct Parcel {
  char byte = 0;
  iovec data{&byte, 1};
  alignas(cmsghdr) std::array<char, CMSG_SPACE(sizeof(Handed))> room{};
  msghdr message{};

  Parcel() {
    message.msg_iov = &data;
    message.msg_iovlen = 1;
    message.msg_control = room.data();
    message.msg_controllen = room.size();
  }
};

bool Hand(int socket, const Handed& descriptors) {
  Parcel parcel;
  cmsghdr* head = CMSG_FIRSTHDR(&parcel.message);
  head->cmsg_level = SOL_SOCKET;
  head->cmsg_type = SCM_RIGHTS;
  head->cmsg_len = CMSG_LEN(sizeof(Handed));
  std::memcpy(CMSG_DATA(head), descriptors.data(), sizeof(Handed));
  return sendmsg(socket, &parcel.message, MSG_NOSIGNAL) == 1;
}

std::optional<std::array<Descriptor, kHandedOver>> Take(int socket) {
  Parcel parcel;
  if (recvmsg(socket, &parcel.message, MSG_CMSG_CLOEXEC) != 1) {
    return std::nullopt;
  }
  const cmsghdr* head = CMSG_FIRSTHDR(&parcel.message);
  if (head == nullptr || head->cmsg_type != SCM_RIGHTS || head->cmsg_len != CMSG_LEN(sizeof(Handed))) {
    return std::nullopt;
  }
  Handed numbers{};
  std::memcpy(numbers.data(), CMSG_DATA(head), sizeof(Handed));
  return std::array{Descriptor(numbers[0]), Descriptor(numbers[1]), Descriptor(numbers[2])};
}

}  // namespace

Descriptor::~Descriptor() {
  if (open()) {
    close(number_);
  }
}

void SharedProgress::Unmap::operator()(RankProgress* mapped) const { munmap(mapped, ranks * sizeof(RankProgress)); }

Result<SharedProgress> SharedProgress::Make(std::size_t ranks) {
  Descriptor memory(memfd_create("tidemark-progress", MFD_CLOEXEC));
  if (!memory.open() || ftruncate(memory.get(), static_cast<off_t>(ranks * sizeof(RankProgress))) != 0) {
    return CannotSupervise("shared memory");
  }
  std::optional<SharedProgress> made = Map(std::move(memory), ranks);
  if (!made) {
    return CannotSupervise("shared memory");
  }
  for (std::size_t i = 0; i < ranks; ++i) {
    new (&(*made)[i]) RankProgress;
  }
  return std::move(*made);
}

std::optional<SharedProgress> SharedProgress::Map(Descriptor memory, std::size_t ranks) {
  const std::size_t length = ranks * sizeof(RankProgress);
  struct stat about {};
  if (fstat(memory.get(), &about) != 0 || static_cast<std::size_t>(about.st_size) < length) {
    return std::nullopt;
  }
  void* mapped = mmap(nullptr, length, PROT_READ | PROT_WRITE, MAP_SHARED, memory.get(), 0);
  if (mapped == MAP_FAILED) {
    return std::nullopt;
  }
  return SharedProgress(std::move(memory), static_cast<RankProgress*>(mapped), ranks);
}

Result<RankServer> RankServer::Open() {
  std::uint64_t random = 0;
  if (getrandom(&random, sizeof random, 0) != sizeof random) {
    return CannotSupervise("getrandom");
  }
  const std::string name = fmt::format("tidemark-{}-{:016x}", getpid(), random);
  Descriptor socket(::socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0));
  socklen_t length = 0;
  const sockaddr_un address = AddressOf(name, length);
  if (!socket.open() || bind(socket.get(), reinterpret_cast<const sockaddr*>(&address), length) != 0 ||
      listen(socket.get(), SOMAXCONN) != 0) {
    return CannotSupervise("a local socket");
  }
  return RankServer(std::move(socket), fmt::format("{}={}", kVariable, name));
}

std::optional<RankServer::Arrival> RankServer::Accept(const SharedProgress& progress) const {
  Arrival arrival;
  arrival.socket = Descriptor(accept4(socket_.get(), nullptr, nullptr, SOCK_CLOEXEC));
  const auto peer = arrival.socket.open() ? PeerIsOurs(arrival.socket.get()) : std::nullopt;
  constexpr timeval kAtMost{1, 0};  // a process that connects and says nothing holds up nobody for longer
  setsockopt(arrival.socket.get(), SOL_SOCKET, SO_RCVTIMEO, &kAtMost, sizeof kAtMost);
  std::uint64_t rank = 0;
  if (!peer || recv(arrival.socket.get(), &rank, sizeof rank, 0) != sizeof rank ||
      !Hand(arrival.socket.get(), {STDOUT_FILENO, STDERR_FILENO, progress.descriptor()})) {
    return std::nullopt;
  }
  arrival.pid = *peer;
  arrival.rank = rank;
  return arrival;
}

RankLink RankLink::Attach(std::size_t rank, std::size_t ranks) {
  RankLink link;
  link.own_ = std::make_unique<RankProgress>();
  link.progress_ = link.own_.get();
  const char* name = std::getenv(kVariable);
  if (name == nullptr) {
    return link;
  }
  Descriptor socket(::socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0));
  socklen_t length = 0;
  const sockaddr_un address = AddressOf(name, length);
  const std::uint64_t own = rank;
  if (!socket.open() || connect(socket.get(), reinterpret_cast<const sockaddr*>(&address), length) != 0 ||
      !PeerIsOurs(socket.get()) || send(socket.get(), &own, sizeof own, MSG_NOSIGNAL) != sizeof own) {
    return link;
  }
  auto given = Take(socket.get());
  std::optional<SharedProgress> shared;
  if (given) {
    shared = SharedProgress::Map(std::move(given->at(2)), ranks);
  }
  if (!shared) {
    return link;
  }
  dup2(given->at(0).get(), STDOUT_FILENO);
  dup2(given->at(1).get(), STDERR_FILENO);
  std::signal(SIGPIPE, SIG_IGN);  // a reader that has gone is an error of writing, not the death of a rank
  std::signal(SIGTTOU, SIG_IGN);  // mpirun's processes are in the background of the terminal that they write to
  link.socket_ = std::move(socket);
  link.shared_ = std::move(*shared);
  link.progress_ = &link.shared_[rank];
  return link;
}

}  // namespace tidemark
