package layout

import (
	_ "embed" // the text

	"github.com/redis/go-redis/v9"
)

//go:embed head.lua
var headSource string

// NewHeadScript makes a script whose source may call head, which head.lua defines.
func NewHeadScript(source string) *redis.Script { return redis.NewScript(headSource + source) }

// Positions in the list that head returns.
const (
	headTime = iota
	headState
	headConfig
	headDocuments
	headConfigs
)

// Positions in the list of the state's fields.
const (
	headStateVersion = iota
	headStateFormat
	headStateShards
	headStateLog
	headStateOffset
	headStateWatermark
	headStateRebuild
	headStateConfigs
	headStateSize
)

// Positions in a reply of the command TIME.
const (
	timeSeconds = iota
	timeMicroseconds
)

// Head is the beginning of a reply: the state of the shard and the server's clock, read
// in the same script as the rest of the reply.
type Head struct {
	Clock int64 // the server's clock, Unix milliseconds

	Initialised bool   // the shard has a state; if not, the next seven are empty
	Version     string // the fence
	Format      string // see wire.Format
	Shards      int    // how many there are; 0 if the field is not valid
	Log         string // identity of the log
	Offset      uint64
	Watermark   int64
	Rebuild     string // "" unless the shard lacks documents; see Refused

	Configs     int64 // number of configurations
	ConfigsLeft int64 // number of configurations after the last commit

	// About one collection, if the script was asked for one.
	Config    string // its stored configuration, "" if none
	Documents int64  // number of its documents
	Size      Size   // its size after the last commit
}

// Head reads the head at position i.
func (r Reply) Head(i int) Head {
	v := r.List(i)
	state := v.List(headState)
	seconds, microseconds := v.List(headTime).Time()
	shards, _ := ParseShards(state.at(headStateShards))
	return Head{
		Clock:       seconds*1000 + microseconds/1000,
		Initialised: state.Has(headStateVersion),
		Version:     state.Str(headStateVersion),
		Format:      state.Str(headStateFormat),
		Shards:      shards,
		Log:         state.Str(headStateLog),
		Offset:      uint64(state.Int(headStateOffset)),
		Watermark:   state.Int(headStateWatermark),
		Rebuild:     state.Str(headStateRebuild),
		Configs:     v.Int(headConfigs),
		ConfigsLeft: state.Int(headStateConfigs),
		Config:      v.Str(headConfig),
		Documents:   v.Int(headDocuments),
		Size:        SizeOf(state.Str(headStateSize)),
	}
}

// Time reads a reply of the command TIME.
func (r Reply) Time() (seconds, microseconds int64) {
	return r.Int(timeSeconds), r.Int(timeMicroseconds)
}

// After is the text of Lua functions for scripts that go through an index in order from a place on.
// It stands in front of such a script.
//
//go:embed after.lua
var After string
