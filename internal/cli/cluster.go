package cli

import (
	"errors"
	"fmt"
	"net"
	"sort"
	"strconv"
	"strings"

	"github.com/twmb/franz-go/pkg/kmsg"
)

// runCluster is kafka-cluster: cluster-id, unregister, unregister-controller, list-endpoints, api-versions.
func runCluster(e *Env) int {
	p := clusterParser()
	n, err := p.Parse(e.Args, e.Stdout)
	if errors.Is(err, ErrHelp) {
		return 1 // as Kafka's tool
	}
	if err != nil {
		return HandleError(e.Stderr, err)
	}
	if err = clusterCommand(e, p, n); err == nil {
		return 0
	}
	e.Errorf("%s", err.Error())
	var t terse
	if !errors.As(err, &t) {
		printTrace(e, err)
	}
	return 1
}

func clusterParser() *ArgParser {
	p := &ArgParser{Prog: "kafka-cluster", Description: "Tells and changes what a cluster is made of."}
	sub := func(name, help string) *ArgParser {
		s := p.Sub(name, help)
		s.Group(true,
			Arg{Names: []string{"--bootstrap-server", "-b"}, Meta: "BOOTSTRAP_SERVER", Help: "The brokers to connect to."},
			Arg{Names: []string{"--bootstrap-controller", "-C"}, Meta: "BOOTSTRAP_CONTROLLER", Help: "The controllers to connect to."})
		s.Add(Arg{Names: []string{"--config"}, Meta: "CONFIG", Help: "(DEPRECATED) use --command-config."})
		s.Add(Arg{Names: []string{"--command-config", "-c"}, Meta: "COMMAND_CONFIG", Help: "A file with properties for the AdminClient."})
		return s
	}
	sub("cluster-id", "Print the cluster's id.")
	sub("unregister", "Forget a broker.").Add(Arg{Names: []string{"--id", "-i"}, Meta: "ID", Type: "Integer", Required: true, Help: "The broker's id."})
	sub("unregister-controller", "Forget a controller.").Add(Arg{Names: []string{"--id", "-i"}, Meta: "ID", Type: "Integer", Required: true, Help: "The controller's id."})
	sub("list-endpoints", "List the brokers or controllers with their addresses.").Add(
		Arg{Names: []string{"--include-fenced-brokers"}, Help: "List fenced brokers too."})
	sub("api-versions", "Print which APIs in which versions each node serves.")
	return p
}

func clusterCommand(e *Env, p *ArgParser, n *Namespace) error {
	if n.Has("config") && n.Has("command-config") {
		return &JavaError{Class: "net.sourceforge.argparse4j.inf.ArgumentParserException", Text: "--config and --command-config cannot be specified together."}
	}
	path := n.Get("command-config")
	if n.Has("config") {
		e.Println("Option --config has been deprecated and will be removed in a future version. Use --command-config instead.")
		path = n.Get("config")
	}
	a, err := argparseAdmin(e, path, n.Get("bootstrap-server"), n.Get("bootstrap-controller"))
	if err != nil {
		return err
	}
	defer a.Close()
	switch n.Command {
	case "cluster-id":
		r, err := a.describeCluster(false)
		if err != nil {
			return executionError(err)
		}
		if r.ClusterID == "" {
			e.Println("No cluster ID found. The Kafka version is probably too old.")
			return nil
		}
		e.Printf("Cluster ID: %s\n", r.ClusterID)
	case "unregister":
		req := kmsg.NewPtrUnregisterBrokerRequest()
		req.BrokerID = int32(n.Int64("id"))
		r, err := a.controller("unregisterBroker", req)
		if err == nil {
			u := r.(*kmsg.UnregisterBrokerResponse)
			err = errorOf(codeError(u.ErrorCode, u.ErrorMessage))
		}
		return unregistered(e, err, "Broker", "broker", req.BrokerID)
	case "unregister-controller":
		req := kmsg.NewPtrUnregisterControllerRequest()
		req.ControllerID = int32(n.Int64("id"))
		r, err := a.controller("unregisterController", req)
		if err == nil {
			u := r.(*kmsg.UnregisterControllerResponse)
			err = errorOf(codeError(u.ErrorCode, u.ErrorMessage))
		}
		return unregistered(e, err, "Controller", "controller", req.ControllerID)
	case "list-endpoints":
		return listEndpoints(e, a, n.Has("include-fenced-brokers"))
	case "api-versions":
		return printAPIVersions(e, a)
	}
	return nil
}

// errorOf keeps a nil *JavaError a nil error.
func errorOf(j *JavaError) error {
	if j == nil {
		return nil
	}
	return j
}

func unregistered(e *Env, err error, what, api string, id int32) error {
	switch {
	case err == nil:
		e.Printf("%s %d is no longer registered.\n", what, id)
	case isUnsupported(err):
		e.Printf("The target cluster does not support the %s unregistration API.\n", api)
	default:
		return executionError(err)
	}
	return nil
}

func isUnsupported(err error) bool {
	var j *JavaError
	return errors.As(err, &j) && strings.HasSuffix(j.Class, ".UnsupportedVersionException")
}

// argparseAdmin makes an admin client from the options that tools with sub-commands have.
func argparseAdmin(e *Env, config, servers, controllers string) (*admin, error) {
	var props []Property
	if config != "" {
		var err error
		if props, err = ReadProperties(config); err != nil {
			return nil, err
		}
	}
	switch {
	case controllers != "":
		props = setProperty(props, "bootstrap.controllers", controllers)
	case servers != "":
		props = setProperty(props, "bootstrap.servers", servers)
	}
	return newAdmin(e, props)
}

// describeCluster asks for the brokers, or the controllers, and the cluster's id.
func (a *admin) describeCluster(fenced bool) (*kmsg.DescribeClusterResponse, error) {
	req := kmsg.NewPtrDescribeClusterRequest()
	req.IncludeFencedBrokers = fenced
	if a.controllers {
		req.EndpointType = 2
	}
	r, err := a.any("listNodes", req)
	if err != nil {
		return nil, err
	}
	resp := r.(*kmsg.DescribeClusterResponse)
	if err := codeError(resp.ErrorCode, resp.ErrorMessage); err != nil {
		return nil, err
	}
	sort.Slice(resp.Brokers, func(i, j int) bool { return resp.Brokers[i].NodeID < resp.Brokers[j].NodeID })
	return resp, nil
}

func listEndpoints(e *Env, a *admin, fenced bool) error {
	if fenced && a.controllers {
		return illegalArgument("The option --include-fenced-brokers is only supported with --bootstrap-server option")
	}
	r, err := a.describeCluster(fenced)
	if err != nil {
		if isUnsupported(err) && fenced {
			return &JavaError{Class: "java.lang.UnsupportedOperationException", Text: "The broker doesn't support the --include-fenced-brokers option; it is supported from Kafka 4.0 on."}
		}
		return executionError(err)
	}
	// Columns are as wide as Kafka's: as the longest host, as the longest rack or else ten.
	hostWidth, rackWidth := 0, 0
	for _, b := range r.Brokers {
		hostWidth = max(hostWidth, len(b.Host))
		if b.Rack != nil {
			rackWidth = max(rackWidth, len(*b.Rack))
		}
	}
	if rackWidth == 0 {
		rackWidth = 10
	}
	if a.controllers {
		e.Printf("%-10s %-*s %-10s %-10s %-15s\n", "ID", hostWidth, "HOST", "PORT", "RACK", "ENDPOINT_TYPE")
		for _, b := range r.Brokers {
			e.Printf("%-10d %-*s %-10d %-10s %-15s\n", b.NodeID, hostWidth, b.Host, b.Port, orNull(b.Rack), "controller")
		}
		return nil
	}
	e.Printf("%-10s %-*s %-10s %-*s %-10s %-15s\n", "ID", hostWidth, "HOST", "PORT", rackWidth, "RACK", "STATE", "ENDPOINT_TYPE")
	for _, b := range r.Brokers {
		state := "unfenced"
		if b.IsFenced {
			state = "fenced"
		}
		e.Printf("%-10d %-*s %-10d %-*s %-10s %-15s\n", b.NodeID, hostWidth, b.Host, b.Port, rackWidth, orNull(b.Rack), state, "broker")
	}
	return nil
}

// printAPIVersions prints what each node offers, as kafka-broker-api-versions does.
func printAPIVersions(e *Env, a *admin) error {
	r, err := a.describeCluster(false)
	if err != nil {
		return executionError(err)
	}
	known := knownAPIs()
	for _, b := range r.Brokers {
		node := fmt.Sprintf("%s (id: %d rack: %s isFenced: %t)", net.JoinHostPort(b.Host, strconv.Itoa(int(b.Port))), b.NodeID, orNull(b.Rack), b.IsFenced)
		printNodeAPIs(e, a, known, node, b.NodeID)
	}
	return nil
}
