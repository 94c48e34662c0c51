// Package uplink is this broker's talk with the active controller: it registers, sends heartbeats as package lifecycle
// decides, and carries everybody's requests to whoever is the controller now (Ask): forwarded ones of clients, changes of
// ISRs, blocks of producer ids.
//
// Uplink owns one goroutine, from Start to Stop. Ask needs none: it hands a request to package peer and tries again, by a
// timer, when the controller moved. Start reading at Uplink.run and Uplink.Ask.
package uplink
