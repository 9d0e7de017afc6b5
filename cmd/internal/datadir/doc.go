// Package datadir guards the data directory of the embedded NATS server. [Lock] lets one
// process at a time use it. A [Watch] finds out when somebody removes it, and when its disk
// is nearly full.
package datadir
