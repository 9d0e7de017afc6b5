package redisconn

import (
	"cmp"
	"errors"
	"fmt"
	"net"
	"net/url"
	"strconv"
	"strings"

	"github.com/redis/go-redis/v9"

	"github.com/seed18712806/lapse/sink/credentials"
)

// target is a server, a cluster, or what Sentinels name; one of the three is set.
type target struct {
	server   *redis.Options
	cluster  *redis.ClusterOptions
	sentinel *redis.FailoverOptions
}

// sentinelPort is the port of a Sentinel whose address has none.
const sentinelPort = "26379"

// parseURL reads a URL (redis:// or, for TLS, rediss://). Several URLs, separated by
// commas, are nodes of a cluster, and so is one with ?cluster=true. The first URL has the
// user, the password and all parameters. For the URL of Sentinels see parseSentinel.
func parseURL(redisURL string) (target, error) {
	const use = "use redis://[[user]:password@]host:port[/db], several with commas for a cluster, or " +
		"redis+sentinel://…host[:port][,…]/NAME[/db]; rediss:// is for TLS"
	fail := func(err error) (target, error) {
		var parse *url.Error
		if errors.As(err, &parse) {
			err = parse.Err // leaves out the URL, which may hold a password
		}
		return target{}, fmt.Errorf("--redis %s is not valid (%w): %s", credentials.RedactURLs(redisURL), err, use)
	}
	if scheme, rest, ok := cutSentinel(redisURL); ok {
		o, err := parseSentinel(scheme, rest)
		if err != nil {
			return fail(err)
		}
		return target{sentinel: o}, nil
	}
	nodes := strings.Split(redisURL, ",")
	first, err := url.Parse(nodes[0])
	if err != nil {
		return fail(err)
	}
	query := first.Query()
	isCluster := len(nodes) > 1
	if text := query.Get("cluster"); text != "" {
		asked, err := strconv.ParseBool(text)
		switch {
		case err != nil:
			return fail(fmt.Errorf("cluster=%s is neither true nor false", text))
		case !asked && isCluster:
			return fail(fmt.Errorf("several URLs are a cluster, but the first one has cluster=%s", text))
		}
		isCluster = asked
	}
	query.Del("cluster")
	first.RawQuery = query.Encode()

	if !isCluster {
		o, err := redis.ParseURL(first.String())
		if err != nil {
			return fail(err)
		}
		return target{server: o}, nil
	}
	if p := withParameter(query, "read_only", "route_by_latency", "route_by_latency_tolerance",
		"route_randomly"); p != "" {
		return fail(fmt.Errorf("the parameter %s is not allowed: lapse reads from masters alone", p))
	}
	o, err := redis.ParseClusterURL(first.String())
	if err != nil {
		return fail(err)
	}
	for _, node := range nodes[1:] {
		u, err := url.Parse(node)
		if err != nil || u.Scheme != first.Scheme || u.Host == "" {
			return fail(fmt.Errorf("%q is not a %s:// URL", credentials.RedactURLs(node), first.Scheme))
		}
		o.Addrs = append(o.Addrs, u.Host)
	}
	return target{cluster: o}, nil
}

// cutSentinel cuts the scheme from the URL of Sentinels, and returns the scheme of go-redis for
// it. Some programs write it with a hyphen.
func cutSentinel(redisURL string) (scheme, rest string, ok bool) {
	scheme, rest, _ = strings.Cut(redisURL, "://")
	switch strings.ToLower(scheme) {
	case "redis+sentinel", "redis-sentinel":
		return "redis", rest, true
	case "rediss+sentinel", "rediss-sentinel":
		return "rediss", rest, true
	}
	return "", "", false
}

// parseSentinel reads what comes after the scheme of a URL of Sentinels. The user and the
// password are those of the Redis servers. Those of the Sentinels are the parameters
// sentinel_username and sentinel_password.
func parseSentinel(scheme, rest string) (*redis.FailoverOptions, error) {
	rest, rawQuery, _ := strings.Cut(rest, "?")
	hosts, path, _ := strings.Cut(rest, "/")
	name, db, _ := strings.Cut(path, "/")
	name, err := url.PathUnescape(name)
	if err != nil {
		return nil, err
	}
	if name == "" {
		return nil, errors.New("it does not name the master")
	}
	at := strings.LastIndexByte(hosts, '@') + 1 // 0 if there is no user
	login, hosts := hosts[:at], hosts[at:]
	server, err := url.Parse("redis://" + login + "host")
	if err != nil {
		return nil, err
	}
	query, err := url.ParseQuery(rawQuery)
	if err != nil {
		return nil, err
	}
	if p := withParameter(query, "route_by_latency", "route_by_latency_tolerance", "route_randomly", "replica_only",
		"use_disconnected_replicas", "username", "password", "master_name", "addr", "db"); p != "" {
		return nil, fmt.Errorf("the parameter %s is not allowed", p)
	}
	user, secret := query.Get("sentinel_username"), query.Get("sentinel_password")
	query.Del("sentinel_username")
	query.Del("sentinel_password")
	o, err := redis.ParseFailoverURL((&url.URL{Scheme: scheme, Host: "host", Path: "/" + db,
		RawQuery: query.Encode()}).String())
	if err != nil {
		return nil, err
	}
	o.MasterName, o.SentinelUsername, o.SentinelPassword, o.SentinelAddrs = name, user, secret, nil
	o.Username = server.User.Username()
	o.Password, _ = server.User.Password()
	for address := range strings.SplitSeq(hosts, ",") {
		u, err := url.Parse("redis://" + address)
		if err != nil || u.Hostname() == "" {
			return nil, fmt.Errorf("%q is not host:port", address)
		}
		o.SentinelAddrs = append(o.SentinelAddrs, net.JoinHostPort(u.Hostname(), cmp.Or(u.Port(), sentinelPort)))
	}
	if o.TLSConfig != nil {
		o.TLSConfig.ServerName = "" // each server has to prove its own name
	}
	return o, nil
}

// withParameter is the first of the names that a query has; "" if it has none.
func withParameter(query url.Values, names ...string) string {
	for _, name := range names {
		if query.Has(name) {
			return name
		}
	}
	return ""
}
