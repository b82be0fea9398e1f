// Rates from counters: the growth over the last messages.
const WINDOW_S = 12;

export class Rates {
  constructor() { this.kept = []; }

  add(message) {
    const { at, details, status } = message;
    const previous = this.kept.at(-1);
    if (previous && status.started_at !== previous.started) this.kept = []; // another run
    const steps = {};
    for (const step of details.steps) steps[`${step.stage}:${step.place}`] = step;
    const edges = {};
    for (const [from, to, events] of details.edges) edges[`${from}:${to}`] = events;
    const workers = {};
    for (const load of details.worker_loads) workers[load.worker] = load;
    const sinks = {};
    for (const sink of status.sinks) sinks[sink.name] = sink.outputs;
    this.kept.push({
      at, started: status.started_at, batches: status.batches, steps, edges, workers, sinks,
      stages: details.stage_events, groups: details.group_events,
    });
    // the window is at least two batches long, so that a long batch is not silence
    while (this.kept.length > 2 && at - this.kept[1].at > WINDOW_S
      && status.batches - this.kept[1].batches >= 2) this.kept.shift();
    if (this.kept.length > 600) this.kept.shift();
  }

  // growth per second of what `pick` takes out of a message
  of(pick) {
    const first = this.kept[0], last = this.kept.at(-1);
    if (!last) return 0;
    const now = pick(last) ?? 0;
    const isOne = this.kept.length < 2;
    const seconds = isOne ? last.at - last.started : last.at - first.at;
    return Math.max(0, now - (isOne ? 0 : pick(first) ?? 0)) / Math.max(seconds, 0.001);
  }

  stage(id) { return this.of((kept) => kept.stages[id]); }
  edge(from, to) { return this.of((kept) => kept.edges[`${from}:${to}`]); }
  stepEvents(stage, place) { return this.of((kept) => kept.steps[`${stage}:${place}`]?.events); }
  stepTime(stage, place) { return this.of((kept) => kept.steps[`${stage}:${place}`]?.seconds); }
  group(id) { return this.of((kept) => kept.groups[id]); }
  sink(name) { return this.of((kept) => kept.sinks[name]); }
  workerTime(name) { return this.of((kept) => kept.workers[name]?.busy_seconds); }
  workerEvents(name) { return this.of((kept) => kept.workers[name]?.events); }
}
