// The message pattern of MINOS-B with the Synch model as a straightforward SimGrid program: what Nicol's
// simulator is measured against (`cargo xtask peers`). [MINOS24 figure 2, table III]
//
// Every node has CORES cores. A client of each issues requests one after the other, half of them writes. A
// write sends INV to the same core of every other node, persists, waits for every ACK, and sends VAL. A core
// that gets an INV persists and sends ACK. Reads are local. There are no records, locks, timestamps or
// histories: only what it takes for the messages to be sent and for time to pass.
//
// One actor is a client, one serves a core. What is sent is sent detached, without copies, in messages that
// are taken from a pool, so that neither waiting for a send nor allocation is measured.
//
// usage: minos_simgrid NODES REQUESTS_PER_NODE [SimGrid's flags, such as --cfg=network/model:CM02]

#include <sys/resource.h>

#include <chrono>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <simgrid/s4u.hpp>
#include <string>
#include <vector>

namespace sg4 = simgrid::s4u;

namespace {

constexpr int kCores = 5;
// Table III: bandwidth and latency of a link, time to persist 1 KB. Bytes on the wire are Nicol's.
constexpr double kBandwidth = 7e9;
constexpr double kLatency = 150e-9;
constexpr double kPersist = 1295e-9;
constexpr double kValueBytes = 1024;
constexpr double kHeaderBytes = 66;
// What a core spends on a message, and on a read: sums of Nicol's profile `minos-snic`.
constexpr double kHandle = 200e-9;
constexpr double kRead = 300e-9;

enum class Kind : uint8_t { kInv, kAck, kVal, kStop };

struct Message {
  Kind kind;
  int from;
};

struct Cluster {
  int nodes = 0;
  int requests = 0;
  std::vector<Message*> pool;
  uint64_t messages = 0;
  uint64_t writes = 0;
  // By node and core.
  std::vector<sg4::Mailbox*> cores;
  std::vector<sg4::Mailbox*> clients;
  int running = 0;

  int Place(int node, int core) const { return node * kCores + core; }

  void Send(sg4::Mailbox* to, Kind kind, int from, double bytes) {
    Message* message;
    if (pool.empty()) {
      message = new Message;
    } else {
      message = pool.back();
      pool.pop_back();
    }
    *message = Message{kind, from};
    messages += kind != Kind::kStop;
    to->put_init(message, static_cast<uint64_t>(bytes))->detach();
  }

  Message Receive(sg4::Mailbox* at) {
    auto* message = at->get<Message>();
    const Message received = *message;
    pool.push_back(message);
    return received;
  }
};

Cluster cluster;

uint64_t Draw(uint64_t* state) {
  *state ^= *state << 13;
  *state ^= *state >> 7;
  *state ^= *state << 17;
  return *state;
}

void Client(int node, int core) {
  sg4::Mailbox* own = cluster.clients[cluster.Place(node, core)];
  uint64_t random = 88172645463325252ULL + static_cast<uint64_t>(cluster.Place(node, core)) * 7919;
  for (int request = 0; request < cluster.requests / kCores; request++) {
    if (Draw(&random) % 2 == 0) {
      sg4::this_actor::sleep_for(kRead);
      continue;
    }
    cluster.writes++;
    for (int to = 0; to < cluster.nodes; to++) {
      if (to != node) {
        sg4::Mailbox* core_of = cluster.cores[cluster.Place(to, core)];
        cluster.Send(core_of, Kind::kInv, node, kHeaderBytes + kValueBytes);
      }
    }
    sg4::this_actor::sleep_for(kHandle + kPersist);
    for (int acks = 1; acks < cluster.nodes; acks++) {
      cluster.Receive(own);
    }
    for (int to = 0; to < cluster.nodes; to++) {
      if (to != node) {
        cluster.Send(cluster.cores[cluster.Place(to, core)], Kind::kVal, node, kHeaderBytes);
      }
    }
  }
  if (--cluster.running == 0) {
    for (sg4::Mailbox* served : cluster.cores) {
      cluster.Send(served, Kind::kStop, node, kHeaderBytes);
    }
  }
}

void Core(int node, int core) {
  sg4::Mailbox* own = cluster.cores[cluster.Place(node, core)];
  while (true) {
    const Message message = cluster.Receive(own);
    switch (message.kind) {
      case Kind::kInv:
        sg4::this_actor::sleep_for(kHandle + kPersist);
        cluster.Send(cluster.clients[cluster.Place(message.from, core)], Kind::kAck, node,
                     kHeaderBytes);
        break;
      case Kind::kVal:
        sg4::this_actor::sleep_for(kHandle);
        break;
      default:
        return;
    }
  }
}

double CpuSeconds() {
  rusage usage{};
  getrusage(RUSAGE_SELF, &usage);
  const auto seconds = [](const timeval& t) { return t.tv_sec + t.tv_usec / 1e6; };
  return seconds(usage.ru_utime) + seconds(usage.ru_stime);
}

}  // namespace

int main(int argc, char** argv) {
  sg4::Engine engine(&argc, argv);
  if (argc != 3) {
    std::fprintf(stderr, "usage: minos_simgrid NODES REQUESTS_PER_NODE [--cfg=...]\n");
    return 2;
  }
  cluster.nodes = std::atoi(argv[1]);
  cluster.requests = std::atoi(argv[2]);
  auto* zone = sg4::create_star_zone("cluster");
  for (int node = 0; node < cluster.nodes; node++) {
    const std::string name = "node-" + std::to_string(node);
    auto* host = zone->create_host(name, 2.1e9)->set_core_count(kCores);
    // Half of a way's latency on either side of the switch.
    auto* up = zone->create_link(name + "-up", kBandwidth)->set_latency(kLatency / 2)->seal();
    auto* down = zone->create_link(name + "-down", kBandwidth)->set_latency(kLatency / 2)->seal();
    zone->add_route(host->get_netpoint(), nullptr, nullptr, nullptr, {sg4::LinkInRoute(up)}, false);
    zone->add_route(nullptr, host->get_netpoint(), nullptr, nullptr, {sg4::LinkInRoute(down)}, false);
  }
  zone->seal();
  for (int node = 0; node < cluster.nodes; node++) {
    auto* host = engine.host_by_name("node-" + std::to_string(node));
    for (int core = 0; core < kCores; core++) {
      const std::string place = std::to_string(node) + "-" + std::to_string(core);
      cluster.cores.push_back(sg4::Mailbox::by_name("core-" + place));
      cluster.clients.push_back(sg4::Mailbox::by_name("client-" + place));
      cluster.running++;
      auto served = sg4::Actor::create("core-" + place, host, Core, node, core);
      cluster.cores.back()->set_receiver(served);
      auto client = sg4::Actor::create("client-" + place, host, Client, node, core);
      cluster.clients.back()->set_receiver(client);
    }
  }
  const double started = CpuSeconds();
  engine.run();
  const double ended = CpuSeconds();
  rusage usage{};
  getrusage(RUSAGE_SELF, &usage);
  std::printf("{\"messages\": %llu, \"writes\": %llu, \"simulated_s\": %.6f, \"start_cpu_s\": %.3f, "
              "\"cpu_s\": %.3f, \"memory_kib\": %ld}\n",
              static_cast<unsigned long long>(cluster.messages),
              static_cast<unsigned long long>(cluster.writes), sg4::Engine::get_clock(), started,
              ended - started, usage.ru_maxrss);
  return 0;
}
