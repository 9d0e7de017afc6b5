package wire

import (
	"encoding/json"
	"time"
)

// ForecastRequest asks how many documents will expire. Every member may be left out.
type ForecastRequest struct {
	Buckets int    `json:"buckets,omitempty"` // 1 to MaxBuckets, DefaultBuckets if left out
	Within  string `json:"within,omitempty"`  // as ParseDuration reads it, DefaultWithin if left out
	// DefaultTTL asks for a forecast with another default TTL, as if it were configured now:
	// "null" for off, "-1", or a number of seconds, as in a configuration. If it is left out
	// (nil), the forecast is for the configured default.
	DefaultTTL json.RawMessage `json:"defaultTtl,omitempty"`
	// MaxLife asks for a forecast with another maxLife, as if it were configured now: a number of seconds, 0 for none. If
	// it is left out (nil), the forecast is for the configured one. It counts for the documents for which it would count
	// at once: those that inherit and were written once.
	MaxLife *int32 `json:"maxLife,omitempty"`
	// MinTTL and MaxTTL ask how many documents do not keep to these limits, as if they were configured
	// now: numbers of seconds, 0 for none.
	MinTTL int32 `json:"minTtl,omitempty"`
	MaxTTL int32 `json:"maxTtl,omitempty"`
}

// Limits of a forecast.
const (
	DefaultBuckets = 10
	MaxBuckets     = 1000
	DefaultWithin  = time.Hour
)

// ForecastReply says how many documents will expire, if nobody writes or configures
// anything until then.
type ForecastReply struct {
	Buckets []Bucket `json:"buckets"`
	// AtOnce is how many live documents the change to the request's defaultTtl and maxLife would
	// expire at once. They are in no bucket. It is absent if the request had neither.
	AtOnce *int64 `json:"atOnce,omitempty"`
	// Outside is how many live documents do not keep to the request's minTtl and maxTtl, by their own TTL
	// or absolute deadline. It is absent if the request had neither. OutsideMore reports that there may be
	// more: counting took too long.
	Outside     *int64 `json:"outside,omitempty"`
	OutsideMore bool   `json:"outsideMore,omitempty"`
}

// Bucket counts the documents that expire after From and at or before Until.
type Bucket struct {
	From  Time  `json:"from"`
	Until Time  `json:"until"`
	Count int64 `json:"count"`
}
