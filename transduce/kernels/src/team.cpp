// See team.h.
#include "team.h"

#include <csignal>

#include <omp.h>
#include <pthread.h>
#include <sched.h>

#include <atomic>
#include <chrono>
#include <condition_variable>
#include <mutex>

#if defined(__x86_64__)
#include <immintrin.h>
#endif

namespace {

// How long a thread without work looks for some before it sleeps: several times what passes between two kernels of a
// step, so that it sleeps between steps at most.
constexpr auto PATIENCE = std::chrono::microseconds(300);

// Looks at an unfinished piece before the caller gives up its core to whoever has begun it.
constexpr int WAIT = 500;

inline void pause() {
#if defined(__x86_64__)
    _mm_pause();
#endif
}

// One call's pieces at a time. `turn_` holds the number of the call and of its next piece. A piece is taken by raising
// it, which fails once another call has begun: a late thread cannot take a piece of a call it has not looked at.
class Team {
  public:
    void run(int64_t pieces, void (*work)(void*, int64_t, int), void* context) {
        const std::unique_lock<std::mutex> only(calls_, std::try_to_lock);
        const int members = only ? team_size() : 1;
        if (members == 1) { // or another thread's call has the team
            for (int64_t piece = 0; piece < pieces; piece++) work(context, piece, 0);
            return;
        }
        hire(members - 1);
        const uint64_t call = ((turn_.load() >> 32) + 1) << 32;
        turn_.store(call | NONE_LEFT); // nobody reads what is written now
        work_.store(work, std::memory_order_relaxed);
        context_.store(context, std::memory_order_relaxed);
        pieces_.store(uint32_t(pieces), std::memory_order_relaxed);
        members_.store(members, std::memory_order_relaxed);
        done_.store(0, std::memory_order_relaxed);
        turn_.store(call);
        if (sleeping_.load()) wake();
        while (take(0)) {}
        for (int looks = 0; done_.load(std::memory_order_acquire) < pieces; looks++) looks < WAIT ? pause() : (void)sched_yield();
    }

  private:
    static constexpr uint32_t NONE_LEFT = UINT32_MAX;

    bool take(int member) {
        uint64_t turn = turn_.load(std::memory_order_acquire);
        for (;;) {
            const auto work = work_.load(std::memory_order_relaxed);
            void* const context = context_.load(std::memory_order_relaxed);
            const uint32_t piece = uint32_t(turn);
            if (piece >= pieces_.load(std::memory_order_relaxed) || member >= members_.load(std::memory_order_relaxed)) return false;
            if (!turn_.compare_exchange_weak(turn, turn + 1)) continue;
            work(context, piece, member);
            done_.fetch_add(1, std::memory_order_release);
            return true;
        }
    }

    // Threads up to so many, or as many as the system gives. Signals are for the program's own threads.
    void hire(int others) {
        if (hired_ >= others) return;
        sigset_t all, before;
        sigfillset(&all);
        pthread_sigmask(SIG_SETMASK, &all, &before);
        pthread_t thread;
        while (hired_ < others) {
            auto* member = new Member{this, hired_ + 1};
            if (pthread_create(&thread, nullptr, begin, member)) {
                delete member;
                break;
            }
            pthread_detach(thread);
            hired_++;
        }
        pthread_sigmask(SIG_SETMASK, &before, nullptr);
    }

    struct Member {
        Team* team;
        int number;
    };
    static void* begin(void* given) {
        const std::unique_ptr<Member> member(static_cast<Member*>(given));
        member->team->serve(member->number);
        return nullptr;
    }

    void serve(int member) {
        for (;;) {
            const uint64_t call = turn_.load() >> 32;
            if (!look_for_work(member)) sleep_past(call);
        }
    }

    bool look_for_work(int member) {
        const auto start = std::chrono::steady_clock::now();
        do {
            for (int looks = 0; looks < 100; looks++) {
                if (take(member)) return true;
                pause();
            }
        } while (std::chrono::steady_clock::now() - start < PATIENCE);
        return false;
    }

    void sleep_past(uint64_t call) {
        std::unique_lock<std::mutex> lock(bed_);
        sleeping_++;
        bell_.wait(lock, [&] { return turn_.load() >> 32 != call; });
        sleeping_--;
    }

    void wake() {
        const std::lock_guard<std::mutex> lock(bed_);
        bell_.notify_all();
    }

    std::mutex calls_, bed_;
    std::condition_variable bell_;
    std::atomic<int> sleeping_{0};
    int hired_ = 0;
    alignas(64) std::atomic<uint64_t> turn_{0};
    alignas(64) std::atomic<int64_t> done_{0};
    std::atomic<void (*)(void*, int64_t, int)> work_{nullptr};
    std::atomic<void*> context_{nullptr};
    std::atomic<uint32_t> pieces_{0};
    std::atomic<int> members_{0};
};

std::atomic<Team*> team{nullptr};

// The process's team, never torn down; a forked child, which has none of its threads, starts anew.
Team& the_team() {
    Team* found = team.load(std::memory_order_acquire);
    if (found) return *found;
    static std::once_flag once;
    std::call_once(once, [] { pthread_atfork(nullptr, nullptr, [] { team = nullptr; }); });
    Team* fresh = new Team;
    if (team.compare_exchange_strong(found, fresh)) return *fresh;
    delete fresh;
    return *found;
}

} // namespace

int team_size() { return omp_get_max_threads(); }

void team_run(int64_t pieces, void (*work)(void*, int64_t, int), void* context) { the_team().run(pieces, work, context); }
