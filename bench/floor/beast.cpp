// Boost.Beast's rung of request-response: a blocking client, one frame out, one frame back.
//
//   beast rr <port> <cpu> <size[-upto]> <rounds> <warmup>
//
// The payloads are those of bench/clients/payloads.py, and every reply is compared with them.
#include <sched.h>
#include <signal.h>
#include <sys/prctl.h>
#include <time.h>

#include <algorithm>
#include <boost/asio.hpp>
#include <boost/beast/core.hpp>
#include <boost/beast/websocket.hpp>
#include <cstdlib>
#include <cstring>
#include <iostream>
#include <string>
#include <vector>

extern "C" {
#include "../common/samples.h"
}

namespace asio = boost::asio;
namespace beast = boost::beast;

static uint64_t now_ns() {
    timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return uint64_t(t.tv_sec) * 1000000000u + uint64_t(t.tv_nsec);
}

int main(int argc, char **argv) {
    if (argc != 7) {
        std::cerr << "usage: beast rr <port> <cpu> <size[-upto]> <rounds> <warmup>\n";
        return 2;
    }
    prctl(PR_SET_PDEATHSIG, SIGKILL);
    cpu_set_t set;
    CPU_ZERO(&set);
    CPU_SET(size_t(std::atoi(argv[3])), &set);
    sched_setaffinity(0, sizeof set, &set);

    char *upto;
    uint32_t low = uint32_t(std::strtoul(argv[4], &upto, 10));
    uint32_t high = *upto == '-' ? uint32_t(std::strtoul(upto + 1, nullptr, 10)) : low;
    size_t warmup = std::strtoul(argv[6], nullptr, 10);
    size_t rounds = warmup + std::strtoul(argv[5], nullptr, 10);

    asio::io_context context;
    beast::websocket::stream<asio::ip::tcp::socket> ws(context);
    ws.next_layer().connect({asio::ip::address_v4::loopback(), uint16_t(std::atoi(argv[2]))});
    ws.next_layer().set_option(asio::ip::tcp::no_delay(true));
    ws.read_message_max(0);
    ws.auto_fragment(false);
    // A frame leaves in one piece, or in those of 64 KiB of Asio, instead of those of 4 KiB.
    ws.write_buffer_bytes(std::max<size_t>(8, high + 14));
    ws.handshake("127.0.0.1:" + std::string(argv[2]), "/");
    ws.binary(true);

    std::vector<uint8_t> payload(high);
    for (size_t i = 0; i < high; i++)
        payload[i] = uint8_t(i % 251);
    std::vector<uint64_t> ns(rounds);
    beast::flat_buffer reply;
    uint32_t state = 1; // the sizes of payloads.sizes()
    for (size_t i = 0; i < rounds; i++) {
        state = state * 1664525u + 1013904223u;
        size_t size = low + (state >> 8) % (high - low + 1);
        reply.clear();
        uint64_t start = now_ns();
        ws.write(asio::buffer(payload.data(), size));
        ws.read(reply);
        ns[i] = now_ns() - start;
        if (reply.size() != size || std::memcmp(reply.data().data(), payload.data(), size) != 0) {
            std::cerr << "a reply is not what was sent\n";
            return 1;
        }
    }
    samples_print(ns.data() + warmup, rounds - warmup);
}
