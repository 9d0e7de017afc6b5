package main

// changeTeeth break the messages about changes, in collections that publish them.
var changeTeeth = []tooth{
	{"change-not-in-the-tail", "G3 S6", "sink/events/place.go",
		"A takeover does not find the changes that a former owner has published, and publishes them again.",
		`wire.KindChanged: keyChanged, `,
		``},
	{"change-told-by-time", "G3 S6", "processor/internal/fold/changed.go",
		"Whether a change is published is judged by log time, which messages before and after a checkpoint may share.",
		`c, wire.Time(d.Watermark), trace), Seq: m.Seq})`,
		`c, wire.Time(d.Watermark), trace), At: d.Watermark})`},
	{"drop-by-its-last-words", "G4", "processor/internal/shard/control.go",
		"A drop is published by the configuration that it leaves, which has no changes.",
		`m.Kind == fold.Drop && applies && current.Changes {`,
		`m.Kind == fold.Drop && applies && next.Changes {`},
}
