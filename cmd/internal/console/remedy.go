package console

import (
	"regexp"
	"strings"
)

// Trouble is one of the reasons for which a process is not ready.
type trouble struct{ Text, Advice string }

// troublesOf lists the lines of an answer of /readyz, each with what to do.
func troublesOf(err error) (all []trouble) {
	if err == nil {
		return nil
	}
	for line := range strings.Lines(err.Error()) {
		line = strings.TrimSpace(line)
		all = append(all, trouble{line, remedy(line)})
	}
	return all
}

var shardName = regexp.MustCompile(`^shards? [^:]*: `)

// remedy is what to do about a line: the beginning of it is the name of a problem, perhaps
// behind that of its shards.
func remedy(line string) string {
	name, _, _ := strings.Cut(shardName.ReplaceAllString(line, ""), ": ")
	if text := remedies[name]; text != "" {
		return text
	}
	for part, text := range states {
		if strings.Contains(line, part) {
			return text
		}
	}
	return ""
}

// states is what to do about what is no problem, but keeps a process from being ready, by a part of
// the line.
var states = map[string]string{
	"have not applied the log yet": "Wait while lapse applies the log. Do not restart it: with the embedded Redis it would begin again.",
	"no process owns":              "Wait a second for a takeover. If it stays: look at the bucket of members, which needs a leader.",
	"has not found out yet":        "Wait a second. If it stays: look at the bucket of members, which needs a leader.",
}

// remedies is what to do about each problem, by its name. deploy/README.md has more.
var remedies = map[string]string{
	"NATS":                         "Make the NATS server reachable. lapse connects again by itself.",
	"Redis":                        "Make Redis reachable. lapse goes on by itself, and rebuilds what Redis has lost.",
	"Redis may evict":              "Set maxmemory-policy noeviction in Redis, and give it more memory.",
	"log":                          "Look at the stream of the log: nats stream info. It needs a leader and room on the disk.",
	"log cannot be appended to":    "Look at the stream of the log: it is full, or has no leader.",
	"append to the log":            "Look at the stream of the log: it is full, or has no leader.",
	"events cannot be published":   "Look at the stream of events: it is full, or has no leader. Events wait, and none is lost.",
	"checkpoints cannot be stored": "Look at the bucket of checkpoints. Events go on; a takeover takes longer.",
	"mapping":                      "Correct the mappings of the NATS account, as the message says.",
	"configurations":               "Look at the stream of configurations: the logs copy it.",
	"partitions":                   "Look at the reason: mostly Redis or NATS refuses something. lapse tries again by itself.",
	"permissions in NATS":          "Give the NATS user of lapse the permission that is named.",
	"permissions in Redis":         "Give the Redis user of lapse the command that is named.",
	"overdue":                      "Find out what is slow: NATS, Redis, or the CPU of lapse.",
	"slow step":                    "Find out what is slow: NATS, Redis, or the CPU of lapse.",
	"behind":                       "Wait while the lag falls. If it grows, writes come faster than lapse applies them.",
	"forgetting":                   "Let lapse take snapshots, and let Redis rewrite its files.",
	"clock":                        "Set the clocks of the machines right (NTP).",
	"clock behind":                 "Set the clock of the server that leads the log right (NTP). Events are late by as much.",
	"lease":                        "Look at the bucket of members: it needs a leader.",
	"refused":                      "Restore what is missing, as the reason says: lapse goes on by itself. Nothing is changed meanwhile.",
	"takeover":                     "Look at the reason: lapse tries again by itself.",
	"reads":                        "Make Redis and NATS reachable for this process.",
	"another Redis":                "Give this process the Redis of the owner, or stop the processes that use the old one.",
	"disk":                         "Make room on the disk of the data directory.",
}
