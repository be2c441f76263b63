// The threads that kernels share their work among: the caller and whoever is free.
//
// The caller deals out pieces and takes them itself too; it waits for pieces that another thread has begun, never for
// a thread that has not. So beside a busy neighbour, where a barrier would wait for a thread that has no core, a call
// costs no more than it would alone. Owns threads and waiting; knows no kernel.
#pragma once

#include <cstdint>
#include <memory>
#include <vector>

// Threads that a call may use: as many as torch uses.
int team_size();

// work(context, piece, member) for every piece in [0, pieces): member, below team_size(), is the thread it runs on.
void team_run(int64_t pieces, void (*work)(void*, int64_t, int), void* context);

// One T for each member, made when it first asks.
template <class T> class PerMember {
  public:
    template <class... Arguments> T& of(int member, const Arguments&... arguments) {
        std::unique_ptr<T>& own = all_[member];
        if (!own) own.reset(new T(arguments...));
        return *own;
    }

    // Those of members that asked.
    std::vector<T*> made() const {
        std::vector<T*> found;
        for (const std::unique_ptr<T>& own : all_)
            if (own) found.push_back(own.get());
        return found;
    }

  private:
    std::vector<std::unique_ptr<T>> all_ = std::vector<std::unique_ptr<T>>(team_size());
};

// work(piece, member) for every piece, on all threads if `parallel`.
template <class Work> static void share(int64_t pieces, bool parallel, Work work) {
    if (!parallel || pieces < 2) {
        for (int64_t piece = 0; piece < pieces; piece++) work(piece, 0);
        return;
    }
    team_run(pieces, [](void* context, int64_t piece, int member) { (*static_cast<Work*>(context))(piece, member); }, &work);
}
