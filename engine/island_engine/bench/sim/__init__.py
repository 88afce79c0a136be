"""SGLang's real scheduler in virtual time: the paced engine without sockets, served by virtual clients. Simulated."""
